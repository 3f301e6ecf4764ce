// Strong<Tag, Rep>: an integer or string with a type of its own. Values of different Tags do not
// mix.
#pragma once

#include <compare>
#include <functional>
#include <ostream>
#include <utility>

namespace longhaul {

template <class Tag, class Rep>
class Strong {
 public:
  using rep = Rep;
  constexpr Strong() = default;
  constexpr explicit Strong(Rep value) : value_(std::move(value)) {}
  constexpr const Rep& value() const { return value_; }

  friend constexpr bool operator==(const Strong&, const Strong&) = default;
  friend constexpr auto operator<=>(const Strong&, const Strong&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Strong& s) { return out << s.value_; }

  // For integers: returns the value plus 1.
  constexpr Strong Next() const { return Strong(static_cast<Rep>(value_ + 1)); }

  template <class H>
  friend H AbslHashValue(H h, const Strong& s) {
    return H::combine(std::move(h), s.value_);
  }

 private:
  Rep value_{};
};

}  // namespace longhaul

template <class Tag, class Rep>
struct std::hash<longhaul::Strong<Tag, Rep>> {
  size_t operator()(const longhaul::Strong<Tag, Rep>& s) const { return hash<Rep>()(s.value()); }
};
