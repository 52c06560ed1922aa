//! Operators' schemas, read when the program is compiled.

/// The most arguments that an operator has.
const ARGUMENTS: usize = 32;

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tensor,
    /// `int` and `SymInt`.
    Int,
    Float,
    Bool,
}

/// An argument as the schema declares it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter {
    pub kind: Kind,
    /// May be `None`.
    pub optional: bool,
    /// A tensor that the operator writes to.
    pub mutable: bool,
    /// Where in the schema its name begins and ends.
    name: (usize, usize),
}

/// What a schema says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signature {
    schema: &'static str,
    /// Where the operator's name ends.
    name: usize,
    parameters: [Parameter; ARGUMENTS],
    inputs: usize,
    /// How many tensors it returns.
    pub outputs: usize,
}

impl Signature {
    /// Reads a schema.
    ///
    /// # Panics
    /// When it is none, or has what operators here cannot have. It is called when the program is compiled: then that is a
    /// compile error.
    pub const fn parse(schema: &'static str) -> Self {
        let text = schema.as_bytes();
        let name = word(text, 0);
        assert!(name > 0 && at(text, name) == b'(', "a schema begins as in `name(Tensor x) -> Tensor`");
        let none = Parameter { kind: Kind::Tensor, optional: false, mutable: false, name: (0, 0) };
        let mut signature = Self { schema, name, parameters: [none; ARGUMENTS], inputs: 0, outputs: 0 };
        let mut here = name + 1;
        while at(text, here) != b')' {
            if signature.inputs > 0 {
                here = after(text, here, b",");
            }
            here = spaces(text, here);
            assert!(signature.inputs < ARGUMENTS, "an operator has at most 32 arguments");
            let (mut parameter, end) = kind(text, here);
            let start = spaces(text, end);
            assert!(
                start > end,
                "an argument has a type, a space and a name; keyword-only ones and lists cannot be had"
            );
            here = word(text, start);
            assert!(here > start, "an argument has a name");
            parameter.name = (start, here);
            signature.parameters[signature.inputs] = parameter;
            signature.inputs += 1;
            assert!(matches!(at(text, here), b',' | b')'), "after an argument's name come others; none has a default");
        }
        here = after(text, spaces(text, here + 1), b"->");
        here = spaces(text, here);
        if at(text, here) == b'(' {
            here = spaces(text, here + 1);
            while at(text, here) != b')' {
                if signature.outputs > 0 {
                    here = spaces(text, after(text, here, b","));
                }
                here = after(text, here, b"Tensor");
                // A result may be named.
                here = spaces(text, word(text, spaces(text, here)));
                signature.outputs += 1;
            }
            here += 1;
        } else {
            here = after(text, here, b"Tensor");
            signature.outputs = 1;
        }
        assert!(here == text.len(), "a schema ends after `-> Tensor`, `-> (Tensor, Tensor)` or `-> ()`");
        signature
    }

    /// The whole text.
    pub fn schema(&self) -> &'static str {
        self.schema
    }

    /// The operator's name.
    pub fn name(&self) -> &'static str {
        &self.schema[..self.name]
    }

    /// The arguments.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters[..self.inputs]
    }

    /// The name of an argument.
    pub fn argument(&self, parameter: &Parameter) -> &'static str {
        &self.schema[parameter.name.0..parameter.name.1]
    }
}

/// The type that begins here, and where it ends.
const fn kind(text: &[u8], here: usize) -> (Parameter, usize) {
    let mut end = word(text, here);
    let kind = if equal(text, here, end, b"Tensor") {
        Kind::Tensor
    } else if equal(text, here, end, b"int") || equal(text, here, end, b"SymInt") {
        Kind::Int
    } else if equal(text, here, end, b"float") {
        Kind::Float
    } else if equal(text, here, end, b"bool") {
        Kind::Bool
    } else {
        panic!("an argument is a Tensor, an int, a SymInt, a float or a bool, each perhaps with `?`")
    };
    let mut mutable = false;
    if at(text, end) == b'(' {
        assert!(matches!(kind, Kind::Tensor) && at(text, end + 2) == b'!', "what is written is a `Tensor(a!)`");
        end = after(text, end + 3, b")");
        mutable = true;
    }
    let optional = at(text, end) == b'?';
    assert!(!(optional && mutable), "what is written cannot be None");
    (Parameter { kind, optional, mutable, name: (0, 0) }, end + optional as usize)
}

/// The byte here, 0 after the last.
const fn at(text: &[u8], here: usize) -> u8 {
    if here < text.len() { text[here] } else { 0 }
}

/// Where the letters, digits and underscores that begin here end.
const fn word(text: &[u8], mut here: usize) -> usize {
    while at(text, here).is_ascii_alphanumeric() || at(text, here) == b'_' {
        here += 1;
    }
    here
}

const fn spaces(text: &[u8], mut here: usize) -> usize {
    while at(text, here) == b' ' {
        here += 1;
    }
    here
}

const fn equal(text: &[u8], start: usize, end: usize, expected: &[u8]) -> bool {
    let mut i = 0;
    while i < expected.len() && at(text, start + i) == expected[i] {
        i += 1;
    }
    i == expected.len() && end - start == expected.len()
}

/// Where what is expected here ends.
const fn after(text: &[u8], here: usize, expected: &[u8]) -> usize {
    assert!(
        equal(text, here, here + expected.len(), expected),
        "a schema is as in `name(Tensor x, int n) -> (Tensor, Tensor)`"
    );
    here + expected.len()
}

/// Run by the compiler.
const _: () = {
    let signature =
        Signature::parse("f_2(Tensor(a!) x, Tensor? b, SymInt n, float? s, bool flag) -> (Tensor y, Tensor)");
    assert!(signature.name == 3 && signature.inputs == 5 && signature.outputs == 2);
    let [x, b, n, s, flag, ..] = signature.parameters;
    assert!(x.mutable && !x.optional && matches!(x.kind, Kind::Tensor));
    assert!(b.optional && !b.mutable && matches!(b.kind, Kind::Tensor));
    assert!(matches!((n.kind, s.kind, flag.kind), (Kind::Int, Kind::Float, Kind::Bool)) && s.optional);
    assert!(equal(signature.schema.as_bytes(), flag.name.0, flag.name.1, b"flag"));
    assert!(Signature::parse("f() -> ()").outputs == 0);
    assert!(Signature::parse("f(Tensor x) -> Tensor").outputs == 1);
};
