// Bytes that the ranks of a tensor-parallel group send each other, by the kind of collective. Plain
// data. Operators work kind by kind; a difference must not be negative, a divisor not 0.
#pragma once

#include <cstdint>

namespace longhaul {

struct CollectiveBytes {
  uint64_t all_reduce = 0, all_gather = 0, reduce_scatter = 0, all_to_all = 0;

  uint64_t total() const { return all_reduce + all_gather + reduce_scatter + all_to_all; }
  CollectiveBytes operator-(const CollectiveBytes& other) const {
    return {all_reduce - other.all_reduce, all_gather - other.all_gather,
            reduce_scatter - other.reduce_scatter, all_to_all - other.all_to_all};
  }
  CollectiveBytes operator+(const CollectiveBytes& other) const {
    return {all_reduce + other.all_reduce, all_gather + other.all_gather,
            reduce_scatter + other.reduce_scatter, all_to_all + other.all_to_all};
  }
  CollectiveBytes operator*(uint64_t times) const {
    return {all_reduce * times, all_gather * times, reduce_scatter * times, all_to_all * times};
  }
  CollectiveBytes operator/(uint64_t parts) const {
    return {all_reduce / parts, all_gather / parts, reduce_scatter / parts, all_to_all / parts};
  }
  friend bool operator==(const CollectiveBytes&, const CollectiveBytes&) = default;
};

}  // namespace longhaul
