//! A persistent list: a clone shares all nodes, and a push adds one node in front.
//!
//! Crates with such a list put every value behind a pointer of its own. An append of a record pushes to two of these
//! lists, so the second allocation would be noticeable.

use std::sync::Arc;

/// The list, newest value first.
pub(crate) struct List<T> {
    first: Option<Arc<Node<T>>>,
    len: usize,
}

struct Node<T> {
    value: T,
    next: Option<Arc<Node<T>>>,
}

impl<T> List<T> {
    pub(crate) const fn new() -> Self {
        Self { first: None, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn first(&self) -> Option<&T> {
        self.first.as_deref().map(|node| &node.value)
    }

    pub(crate) fn push(&mut self, value: T) {
        let next = self.first.take();
        self.first = Some(Arc::new(Node { value, next }));
        self.len += 1;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let mut at = self.first.as_deref();
        std::iter::from_fn(move || {
            let node = at?;
            at = node.next.as_deref();
            Some(&node.value)
        })
    }
}

impl<T: Clone> List<T> {
    /// Copies the newest `count` values to a new list.
    pub(crate) fn newest(&self, count: usize) -> Self {
        let newest: Vec<_> = self.iter().take(count).collect();
        let mut list = Self::new();
        newest.into_iter().rev().for_each(|value| list.push(value.clone()));
        list
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let node = self.first.take()?;
        self.len -= 1;
        match Arc::try_unwrap(node) {
            Ok(mut node) => {
                self.first = node.next.take();
                Some(node.value)
            }
            Err(shared) => {
                self.first.clone_from(&shared.next);
                Some(shared.value.clone())
            }
        }
    }
}

impl<T> Clone for List<T> {
    fn clone(&self) -> Self {
        Self { first: self.first.clone(), len: self.len }
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Drops the nodes in a loop, because dropping a long list recursively would overflow the stack.
impl<T> Drop for List<T> {
    fn drop(&mut self) {
        let mut next = self.first.take();
        while let Some(node) = next.and_then(Arc::into_inner) {
            next = node.next;
        }
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for List<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_to_a_clone_do_not_affect_the_original() {
        let mut a = List::new();
        (0..5).for_each(|n| a.push(n));
        let mut b = a.clone();
        assert_eq!((a.pop(), a.pop()), (Some(4), Some(3)));
        a.push(9);
        b.push(5);
        assert_eq!(a.iter().copied().collect::<Vec<_>>(), [9, 2, 1, 0]);
        assert_eq!(b.iter().copied().collect::<Vec<_>>(), [5, 4, 3, 2, 1, 0]);
        assert_eq!((a.len(), b.len(), b.first()), (4, 6, Some(&5)));
        drop(b);
        assert_eq!((0..9).filter_map(|_| a.pop()).collect::<Vec<_>>(), [9, 2, 1, 0]);
        assert_eq!(a.len(), 0);
    }

    #[test]
    fn dropping_a_long_list_does_not_overflow_the_stack() {
        let mut list = List::new();
        (0..1_000_000).for_each(|n| list.push(n));
        let other = list.clone();
        drop(list);
        assert_eq!(other.iter().count(), 1_000_000);
    }
}
