"""Fault campaigns: each module breaks one kind of thing many times and counts what the harness made of it.

A campaign module defines `CAMPAIGN` (tools.faults.campaign.Campaign) and ends with

    if __name__ == "__main__":
        sys.exit(main(CAMPAIGN))

`python -m tools.faults.NAME [--count N] [--seed S]` runs one campaign, `python -m tools.faults` all of them.
"""
