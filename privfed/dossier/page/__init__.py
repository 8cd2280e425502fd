"""The dossier as a page that loads nothing, and as a PDF where Chromium is installed."""
