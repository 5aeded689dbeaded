"""Fault campaigns: each module injects one kind of fault many times and counts the outcomes.

A campaign module defines `CAMPAIGN` (tools.faults.campaign.Campaign) and ends with

    if __name__ == "__main__":
        sys.exit(main(CAMPAIGN))

`python -m tools.faults.NAME [--count N] [--seed S]` runs one campaign, `python -m tools.faults` runs all.
"""
