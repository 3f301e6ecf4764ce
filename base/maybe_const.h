// One list of a struct's members that serves both directions, writing and reading:
//
//   void Fields(auto&& field, MaybeConst<Point> auto& point) { field("x", point.x); }
//
// `point` is a `const Point&` where it is written and a `Point&` where it is read.
#pragma once

#include <concepts>
#include <type_traits>

namespace longhaul {

template <class Value, class Struct>
concept MaybeConst = std::same_as<std::remove_const_t<Value>, Struct>;

}  // namespace longhaul
