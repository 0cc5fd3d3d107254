"""Web: what the gateway's page and the report share."""
