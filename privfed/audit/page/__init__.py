"""The audit page: one HTML file that needs nothing but a browser, and its charts as files."""
