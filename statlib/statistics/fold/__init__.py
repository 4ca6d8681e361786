"""The fold: carrying what saves left in their own documents into rows, receipts, the ledger and clients' slots.

turn          a project's lease, and batches until nothing is left
batch         which documents one transaction takes
transaction   one batch, all of it or nothing
evidence      what is stored of its operations already
dispositions  apply, discard or set aside
quarantine    what was set aside, within its caps
livelock      one hot document must not hold up the others
discard       the last resort for one document
disabling     the end of fold mode
reports       what the world is told of a batch
"""
