#include "codec/ladder.h"

#include <algorithm>
#include <array>

namespace longhaul::codec {
namespace {

// tests/unit/codec/ladder_test.cc measures these.
constexpr std::array kOfActivations = {
    Rung{"none", 0},
    Rung{"bf16", 0.0017},
    Rung{"fixed:bits=8,tile=64,rounding=nearest", 0.0059},
    Rung{"gauss:bits=6,block=128", 0.0253},
    Rung{"gauss:bits=5,block=128", 0.0498},
    Rung{"gauss:bits=4,block=128", 0.098},
    Rung{"gauss:bits=3,block=128", 0.187},
    Rung{"gauss:bits=2,block=128", 0.344},
};
constexpr std::array kOfGradients = {
    Rung{"none", 0},
    Rung{"bf16", 0.0017},
    Rung{"fixed:bits=8,tile=64,rounding=stochastic", 0.0084},
    Rung{"fixed:bits=6,tile=64,rounding=stochastic", 0.0343},
    Rung{"fixed:bits=5,tile=64,rounding=stochastic", 0.0709},
    Rung{"fixed:bits=4,tile=64,rounding=stochastic", 0.152},
    Rung{"fixed:bits=3,tile=64,rounding=stochastic", 0.354},
};

}  // namespace

std::span<const Rung> LadderOfActivations() {
  return kOfActivations;
}

std::span<const Rung> LadderOfGradients() {
  return kOfGradients;
}

std::span<const Rung> RungsWithin(std::span<const Rung> ladder, double error) {
  const auto beyond = std::ranges::find_if(
      ladder, [error](double of) { return of > error; }, &Rung::error);
  return ladder.first(static_cast<size_t>(beyond - ladder.begin()));
}

}  // namespace longhaul::codec
