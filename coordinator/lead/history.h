// Where a coordinator's store stands in the order of all changes. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <span>

#include "base/hash.h"

namespace longhaul::coordinator {

// A store's newest change. Two stores with equal histories are equal.
struct History {
  uint64_t term = 0;    // of the leader that made the change
  uint64_t number = 0;  // grows by one with each change; 0: a store before its first change
  uint64_t chain = 0;   // a hash of this change and of all before it

  friend bool operator==(const History&, const History&) = default;
};

// Returns whether a store at `a` may lack committed changes that a store at `b` has. Of two stores,
// the one whose newest change has the greater term, or within a term the greater number, has all
// committed changes of the other.
constexpr bool IsBehind(const History& a, const History& b) {
  return a.term != b.term ? a.term < b.term : a.number < b.number;
}

// Returns the chain of a change that comes after one with chain `before`. `change`: the change as
// it is stored.
inline uint64_t ChainAfter(uint64_t before, std::span<const std::byte> change) {
  return Checksum64(std::as_bytes(std::span(&before, 1)), change);
}

}  // namespace longhaul::coordinator
