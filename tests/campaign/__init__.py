"""The fault campaign: everything that can go wrong, at full count.

    python -m tests.campaign [PART ...] [--share 1/5] [--seed 0] [--results FILE.json] [--seconds-limit N]

A *part* is a module with its *cases*, and one line in parts.py. A case repeats one kind of fault; each repetition is a
*try*, numbered from 0. Tries depend on the seed and their number alone, so that a campaign which was stopped
continues with the tries that are missing.
"""
