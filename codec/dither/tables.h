// clang-format off
// Written by make_tables.py; do not edit. For each 2 bits: the frequencies, which add up to 4096, of the
// symbols from -kReach to kReach - 1 and of the escape: for |u| < 1/4, and for |u| >= 1/4.
#pragma once

#include <cstdint>

namespace longhaul::codec::dither {

template <int kHalfBits>
struct Tables;

template <>
struct Tables<2> {
  static constexpr float kPerUnit = 31717.6882f;  // 2^16 steps of a block's scale
  static constexpr float kUnit = 1.57640745e-05f;  // 2^-17 of a step
  // Bits of an element times 1024: expected for normal values, and the most of a block's mean.
  static constexpr uint32_t kUsual = 1266;
  static constexpr uint32_t kMost = 3631;
  static constexpr int kReach = 3;
  static constexpr uint16_t kFrequencies[2][7] = {
      {2, 45, 1587, 2306, 152, 2, 2},
      {2, 10, 896, 2773, 411, 2, 2},
  };
};

template <>
struct Tables<3> {
  static constexpr float kPerUnit = 44855.5848f;  // 2^16 steps of a block's scale
  static constexpr float kUnit = 1.11468840e-05f;  // 2^-17 of a step
  // Bits of an element times 1024: expected for normal values, and the most of a block's mean.
  static constexpr uint32_t kUsual = 1670;
  static constexpr uint32_t kMost = 3512;
  static constexpr int kReach = 4;
  static constexpr uint16_t kFrequencies[2][9] = {
      {2, 4, 206, 1540, 1924, 403, 13, 2, 2},
      {2, 2, 93, 1103, 2149, 705, 38, 2, 2},
  };
};

template <>
struct Tables<4> {
  static constexpr float kPerUnit = 63435.3764f;  // 2^16 steps of a block's scale
  static constexpr float kUnit = 7.88203726e-06f;  // 2^-17 of a step
  // Bits of an element times 1024: expected for normal values, and the most of a block's mean.
  static constexpr uint32_t kUsual = 2121;
  static constexpr uint32_t kMost = 3507;
  static constexpr int kReach = 5;
  static constexpr uint16_t kFrequencies[2][11] = {
      {2, 2, 57, 445, 1331, 1505, 640, 104, 6, 2, 2},
      {2, 2, 29, 291, 1108, 1599, 868, 179, 14, 2, 2},
  };
};

template <>
struct Tables<6> {
  static constexpr float kPerUnit = 126870.753f;  // 2^16 steps of a block's scale
  static constexpr float kUnit = 3.94101863e-06f;  // 2^-17 of a step
  // Bits of an element times 1024: expected for normal values, and the most of a block's mean.
  static constexpr uint32_t kUsual = 3096;
  static constexpr uint32_t kMost = 3899;
  static constexpr int kReach = 9;
  static constexpr uint16_t kFrequencies[2][19] = {
      {2, 2, 3, 14, 51, 150, 338, 590, 792, 819, 651, 398, 188, 69, 19, 4, 2, 2, 2},
      {2, 2, 2, 9, 38, 117, 283, 526, 754, 833, 707, 461, 232, 91, 27, 6, 2, 2, 2},
  };
};

}  // namespace longhaul::codec::dither
// clang-format on
