"""The admin process: what people and their tools look at, over HTTP: `/metrics`, REST, health, and the admin page.

    server   its life: where it listens, what it serves
    app      what is asked, and the answers, from one module for each kind of thing, in the forms of shapes and errors
    guard    what stands before them: who may do what from where, and how much at a time; keys: who asks
    broker   what they ask with: links, a view of the files, figures
    page     the admin page, whose files are in `web`
    survey   goes over all durable sessions now and then: who is how far behind
    pace     how it does that in a share of a core

It has nothing that others need, and nobody waits for it: killed, it is back in seconds, and what had been counted is there.
What commands ask of a running broker is in actors.asking.
"""
