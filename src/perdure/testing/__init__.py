"""What tests, simulations and demonstrations hold a broker against."""

from perdure.testing.delivery import Ledger, Receipts, Stamp, Verdict, audit

__all__ = ["Ledger", "Receipts", "Stamp", "Verdict", "audit"]
