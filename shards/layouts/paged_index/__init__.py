"""An index over the varying levels of streams that is written later than the messages, in sorted pages.

index is what a layout has; the others are what it is made of: entries and merging in RAM, pages on disk, postings for reads.
"""
