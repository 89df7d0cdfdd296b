"""The commit pipeline: a batch gathers, is written and synced, and who waits is told."""
