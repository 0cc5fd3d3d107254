"""Pools: recorded responses on disk, in object storage or in memory."""
