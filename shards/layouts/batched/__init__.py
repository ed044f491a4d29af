"""Messages of a stream without varying levels, several to a value: what pagestream and record_batch have in common."""
