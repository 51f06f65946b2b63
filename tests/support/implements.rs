//! Whether a type has a trait, as a constant: an inherent constant hides a trait's.

macro_rules! implements {
    ($type:ty, $trait:ident) => {{
        #[allow(dead_code)]
        struct Asked<T: ?Sized>(std::marker::PhantomData<T>);
        #[allow(dead_code)]
        trait Otherwise {
            const YES: bool = false;
        }
        impl<T: ?Sized> Otherwise for Asked<T> {}
        #[allow(dead_code)]
        impl<T: ?Sized + $trait> Asked<T> {
            const YES: bool = true;
        }
        Asked::<$type>::YES
    }};
}
