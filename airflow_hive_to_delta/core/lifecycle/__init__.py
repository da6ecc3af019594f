"""The life of a converted table: plan, convert, verify, sync, vacuum, cut over, roll back."""
