"""What all collections of the REST API share: ETags, keys against doing twice, lists, bulk edits.

The API of every app builds on it; it knows no product noun.
"""
