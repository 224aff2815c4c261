//! Values that have one name each, wherever they are written: in JSON, in a file, in the store, on a terminal.

/// A name that none of the values has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown name; it must be one of {}", .0.join(", "))]
pub struct UnknownName(pub &'static [&'static str]);

/// Declares an enum whose values have these names.
macro_rules! named {
    ($(#[$about:meta])* pub enum $type:ident { $($(#[$of_value:meta])* $value:ident = $name:literal,)+ }) => {
        $(#[$about])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord,
            serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        pub enum $type {
            $($(#[$of_value])* #[serde(rename = $name)] $value,)+
        }

        impl $type {
            /// All values.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$value),+];

            /// The name, wherever it is written.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = crate::named::UnknownName;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                let found = Self::ALL.into_iter().find(|value| value.name() == name);
                found.ok_or(crate::named::UnknownName(&[$($name),+]))
            }
        }
    };
}

pub(crate) use named;
