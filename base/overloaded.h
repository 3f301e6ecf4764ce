// Makes one visitor of several lambdas, for std::visit.
#pragma once

namespace longhaul {

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
// clang 14 needs this deduction guide.
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

}  // namespace longhaul
