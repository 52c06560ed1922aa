//! Small vectors: indices, and what one vector instruction loads or stores.

/// Two values of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Vec2<T> {
    /// The first.
    pub x: T,
    /// The second.
    pub y: T,
}

/// Three values of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Vec3<T> {
    /// The first.
    pub x: T,
    /// The second.
    pub y: T,
    /// The third.
    pub z: T,
}

/// Four values of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Vec4<T> {
    /// The first.
    pub x: T,
    /// The second.
    pub y: T,
    /// The third.
    pub z: T,
    /// The fourth.
    pub w: T,
}

impl<T: Copy> Vec2<T> {
    /// Of its parts.
    #[inline(always)]
    pub const fn new(x: T, y: T) -> Self {
        Self { x, y }
    }

    /// The same value twice.
    #[inline(always)]
    pub const fn splat(value: T) -> Self {
        Self::new(value, value)
    }

    /// `f` of each part.
    #[inline(always)]
    pub fn map<U: Copy>(self, mut f: impl FnMut(T) -> U) -> Vec2<U> {
        Vec2::new(f(self.x), f(self.y))
    }

    /// As an array.
    #[inline(always)]
    pub const fn to_array(self) -> [T; 2] {
        [self.x, self.y]
    }
}

impl<T: Copy> Vec3<T> {
    /// Of its parts.
    #[inline(always)]
    pub const fn new(x: T, y: T, z: T) -> Self {
        Self { x, y, z }
    }

    /// As an array.
    #[inline(always)]
    pub const fn to_array(self) -> [T; 3] {
        [self.x, self.y, self.z]
    }
}

impl<T: Copy> Vec4<T> {
    /// Of its parts.
    #[inline(always)]
    pub const fn new(x: T, y: T, z: T, w: T) -> Self {
        Self { x, y, z, w }
    }

    /// The same value four times.
    #[inline(always)]
    pub const fn splat(value: T) -> Self {
        Self::new(value, value, value, value)
    }

    /// `f` of each part.
    #[inline(always)]
    pub fn map<U: Copy>(self, mut f: impl FnMut(T) -> U) -> Vec4<U> {
        Vec4::new(f(self.x), f(self.y), f(self.z), f(self.w))
    }

    /// `f` of each part and the other's.
    #[inline(always)]
    pub fn zip_with<U: Copy, V: Copy>(self, other: Vec4<U>, mut f: impl FnMut(T, U) -> V) -> Vec4<V> {
        Vec4::new(f(self.x, other.x), f(self.y, other.y), f(self.z, other.z), f(self.w, other.w))
    }

    /// As an array.
    #[inline(always)]
    pub const fn to_array(self) -> [T; 4] {
        [self.x, self.y, self.z, self.w]
    }
}

impl<T: Copy> From<[T; 2]> for Vec2<T> {
    #[inline(always)]
    fn from([x, y]: [T; 2]) -> Self {
        Self::new(x, y)
    }
}

impl<T: Copy> From<[T; 4]> for Vec4<T> {
    #[inline(always)]
    fn from([x, y, z, w]: [T; 4]) -> Self {
        Self::new(x, y, z, w)
    }
}
