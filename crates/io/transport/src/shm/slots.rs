//! Lent memory, by the number under which it is returned.

/// A bounded table. A number is reserved before it is known whether its item goes out.
pub(crate) struct Slots<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
    max: u32,
}

impl<T> Slots<T> {
    pub(crate) fn new(max: u32) -> Self {
        Self {
            items: Vec::new(),
            free: Vec::new(),
            max,
        }
    }

    /// Returns a free number; `None` if all are taken.
    pub(crate) fn reserve(&mut self) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        let slot = u32::try_from(self.items.len()).ok()?;
        (slot < self.max).then(|| {
            self.items.push(None);
            slot
        })
    }

    /// Nothing goes out under a number that was reserved.
    pub(crate) fn cancel(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Keeps what goes out under a number that was reserved.
    pub(crate) fn fill(&mut self, slot: u32, item: T) {
        self.items[slot as usize] = Some(item);
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        self.items.get(slot as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.items.get_mut(slot as usize)?.as_mut()
    }

    /// Returns what comes back under `slot`, if it is out and `is_meant`; the number is free again.
    pub(crate) fn take_if(
        &mut self,
        slot: u32,
        is_meant: impl FnOnce(&mut T) -> bool,
    ) -> Option<T> {
        let item = self.items.get_mut(slot as usize)?.take_if(is_meant)?;
        self.free.push(slot);
        Some(item)
    }

    /// Returns how many items are out.
    pub(crate) fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    /// Returns all that is out, which never comes back.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.free.clear();
        self.items.drain(..).flatten()
    }
}
