"""Measures the broker from outside: a load generator, the standard benchmark, and the runners of other people's suites.

Nothing here is part of the broker, and nothing here imports a floor of it: what is measured is reached by MQTT, by `holdfast` on the
command line and by /proc, so the same commands measure any other broker.
"""
