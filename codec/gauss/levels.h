// clang-format off
// Written by make_levels.py; do not edit. The positive levels of the Lloyd-Max quantizers of
// the standard normal distribution with 2 to 6 bits, to fp32's precision.
#ifndef LONGHAUL_CODEC_GAUSS_LEVELS_H_
#define LONGHAUL_CODEC_GAUSS_LEVELS_H_

namespace longhaul::codec::gauss {

template <int kBits>
struct Levels;

template <>
struct Levels<2> {
  static constexpr float kPositive[2] = {
      0.452780035f, 1.51041761f,
  };
};

template <>
struct Levels<3> {
  static constexpr float kPositive[4] = {
      0.245094179f, 0.756005281f, 1.34390928f, 2.15194570f,
  };
};

template <>
struct Levels<4> {
  static constexpr float kPositive[8] = {
      0.128395030f, 0.388048299f, 0.656759119f, 0.942340456f, 1.25623120f, 1.61804639f,
      2.06901723f, 2.73258957f,
  };
};

template <>
struct Levels<5> {
  static constexpr float kPositive[16] = {
      0.0658896598f, 0.198051830f, 0.331378306f, 0.466699523f, 0.604933624f, 0.747135704f,
      0.894565117f, 1.04878332f, 1.21180438f, 1.38634034f, 1.57622808f, 1.78723322f,
      2.02872840f, 2.31773940f, 2.69111958f, 3.26073249f,
  };
};

template <>
struct Levels<6> {
  static constexpr float kPositive[32] = {
      0.0334095064f, 0.100278289f, 0.167296903f, 0.234566985f, 0.302192846f, 0.370282645f,
      0.438949672f, 0.508313781f, 0.578503031f, 0.649655581f, 0.721921941f, 0.795467656f,
      0.870476587f, 0.947154945f, 1.02573635f, 1.10648824f, 1.18972014f, 1.27579449f,
      1.36514102f, 1.45827637f, 1.55583122f, 1.65858890f, 1.76754188f, 1.88397724f,
      2.00961104f, 2.14681022f, 2.29898121f, 2.47130480f, 2.67227384f, 2.91740679f,
      3.24043706f, 3.74410127f,
  };
};

}  // namespace longhaul::codec::gauss

#endif  // LONGHAUL_CODEC_GAUSS_LEVELS_H_
// clang-format on
