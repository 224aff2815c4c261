//! What Colibri itself offers: the `colibri_*` tools.
