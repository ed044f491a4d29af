"""The loss oracle: MQTT clients that know what they are owed, and a judge of what they got.

Knows MQTT and nothing of a broker: it asks every broker that speaks MQTT 5 the same.  Whoever breaks something meanwhile is no concern of
it (`holdfast chaos`, tests, a person with a power switch).
"""
