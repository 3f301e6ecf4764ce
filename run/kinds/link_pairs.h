// The pairs of codecs that have names in run files (`links: fast`).
#pragma once

#include <array>
#include <string_view>

namespace longhaul {

struct LinkPair {
  std::string_view name;
  std::string_view forward, backward;  // codec strings: of activations, of gradients
};

// docs/results/predict.md has what they lose. `auto` leaves each link's codecs to the plan.
inline constexpr std::array<LinkPair, 5> kLinkPairs = {{
    {"default", "predict/gauss:bits=5", "dither:bits=2"},
    {"fast", "predict/gauss:bits=4", "dither:bits=2"},
    {"paper", "tah", "fixed:bits=6"},
    {"exact", "none", "none"},
    {"auto", "auto", "auto"},
}};
inline constexpr const LinkPair& kDefaultPair = kLinkPairs.front();

}  // namespace longhaul
