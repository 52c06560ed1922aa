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
    /// What it is where it is left out, as it and all after it may be.
    pub default: Option<i64>,
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
        let none = Parameter { kind: Kind::Tensor, optional: false, mutable: false, default: None, name: (0, 0) };
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
            if at(text, here) == b'=' {
                assert!(
                    matches!(parameter.kind, Kind::Int) && !parameter.optional && at(text, here + 1).is_ascii_digit(),
                    "what has a default is an int, and the default a natural number"
                );
                let (value, end) = number(text, here + 1);
                parameter.default = Some(value);
                here = end;
            }
            let before = signature.inputs > 0 && signature.parameters[signature.inputs - 1].default.is_some();
            assert!(!before || parameter.default.is_some(), "after an argument with a default all have one");
            signature.parameters[signature.inputs] = parameter;
            signature.inputs += 1;
            assert!(matches!(at(text, here), b',' | b')'), "after an argument come others");
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

    /// The defaults of the arguments after so many that are given; `None` where one has none, or fewer are declared.
    #[inline]
    pub fn defaults_after(&self, given: usize) -> Option<impl Iterator<Item = i64>> {
        let left_out = self.parameters().get(given..)?;
        let defaults = left_out.iter().filter_map(|parameter| parameter.default);
        left_out.first().is_none_or(|first| first.default.is_some()).then_some(defaults)
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
    (Parameter { kind, optional, mutable, default: None, name: (0, 0) }, end + optional as usize)
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

/// The digits that begin here as a number, and where they end.
const fn number(text: &[u8], mut here: usize) -> (i64, usize) {
    let mut value = 0;
    while at(text, here).is_ascii_digit() {
        value = 10 * value + (at(text, here) - b'0') as i64;
        here += 1;
    }
    (value, here)
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
    assert!(flag.default.is_none());
    let [_, n, m, ..] = Signature::parse("f(Tensor x, int n=10, int m=0) -> Tensor").parameters;
    assert!(matches!((n.default, m.default), (Some(10), Some(0))));
    assert!(Signature::parse("f() -> ()").outputs == 0);
    assert!(Signature::parse("f(Tensor x) -> Tensor").outputs == 1);
};
