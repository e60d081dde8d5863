//! What a wrapper of a function of DataFusion leaves as it is.

/// The methods of `ScalarUDFImpl` that say what the function is called and takes, for a wrapper that has it in its field `0`.
macro_rules! forward_names {
    () => {
        fn name(&self) -> &str {
            self.0.name()
        }

        fn aliases(&self) -> &[String] {
            self.0.aliases()
        }

        fn signature(&self) -> &datafusion::logical_expr::Signature {
            self.0.signature()
        }

        fn documentation(&self) -> Option<&datafusion::logical_expr::Documentation> {
            self.0.documentation()
        }
    };
}

/// Those, and the type that it answers with.
macro_rules! forward_identity {
    () => {
        $crate::functions::forward::forward_names!();

        fn return_type(
            &self,
            types: &[datafusion::arrow::datatypes::DataType],
        ) -> datafusion::error::Result<datafusion::arrow::datatypes::DataType> {
            self.0.return_type(types)
        }
    };
}
pub(super) use {forward_identity, forward_names};
