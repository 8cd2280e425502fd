"""The front door: what `import privfed` offers, a module for each name and for what it returns."""
