#include "base/units.h"

#include <gtest/gtest.h>

#include <limits>

namespace longhaul {
namespace {

TEST(Units, RatesAreDecimal) {
  EXPECT_EQ(*ParseBitsPerSecond("8bit"), 8u);
  EXPECT_EQ(*ParseBitsPerSecond("500kbit"), 500'000u);
  EXPECT_EQ(*ParseBitsPerSecond("100mbit"), 100'000'000u);
  EXPECT_EQ(*ParseBitsPerSecond("1.5gbit"), 1'500'000'000u);
  EXPECT_EQ(*ParseBitsPerSecond("10Mbit"), 10'000'000u);
  EXPECT_EQ(*ParseBitsPerSecond("10 mbit"), 10'000'000u);
}

TEST(Units, BytesHaveBothKindsOfMultiples) {
  EXPECT_EQ(*ParseBytes("512"), 512u);
  EXPECT_EQ(*ParseBytes("0"), 0u);
  EXPECT_EQ(*ParseBytes("64KiB"), 65'536u);
  EXPECT_EQ(*ParseBytes("2GiB"), 2ull << 30);
  EXPECT_EQ(*ParseBytes("10MB"), 10'000'000u);
  EXPECT_EQ(*ParseBytes("18446744073709551615"), std::numeric_limits<uint64_t>::max());
}

TEST(Units, Durations) {
  EXPECT_EQ(*ParseDuration("20ms"), absl::Milliseconds(20));
  EXPECT_EQ(*ParseDuration("1.5s"), absl::Milliseconds(1500));
  EXPECT_EQ(*ParseDuration("2m"), absl::Minutes(2));
  EXPECT_EQ(*ParseDuration("1h"), absl::Hours(1));
  EXPECT_EQ(*ParseDuration("2m05s"), absl::Seconds(125));
  EXPECT_EQ(*ParseDuration("0"), absl::ZeroDuration());
}

TEST(Units, WhatIsNoQuantityNamesTheUnits) {
  for (const char* text :
       {"", "mbit", "100", "-1mbit", "1.mbit", ".mbit", "1..5mbit", "1e3mbit", "100mbps",
        "100mbit ", "nan", "99999999999999999999tbit", "111111111111111111111bit"}) {
    const auto rate = ParseBitsPerSecond(text);
    ASSERT_FALSE(rate.ok()) << text;
    EXPECT_NE(Message(rate.status()).find("kbit, mbit, gbit"), std::string_view::npos) << text;
  }
  for (const char* text : {"", "KiB", "-1", "1PiB", "1 2", "18446744073709551616", "20000000TiB"}) {
    const auto bytes = ParseBytes(text);
    ASSERT_FALSE(bytes.ok()) << text;
    EXPECT_NE(Message(bytes.status()).find("KiB, MiB, GiB"), std::string_view::npos) << text;
  }
  for (const char* text : {"", "5", "s", "-1s", "1w", "inf", "36501d", "36500d1ns", "1s 1"}) {
    const auto duration = ParseDuration(text);
    ASSERT_FALSE(duration.ok()) << text;
    EXPECT_EQ(duration.status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(Units, FormatsThreeDigits) {
  EXPECT_EQ(FormatBitsPerSecond(9.56e6), "9.56 Mbit/s");
  EXPECT_EQ(FormatBitsPerSecond(0), "0 bit/s");
  EXPECT_EQ(FormatBitsPerSecond(999.4e3), "999 kbit/s");
  EXPECT_EQ(FormatBitsPerSecond(999.7e3), "1 Mbit/s");
  EXPECT_EQ(FormatBytes(36'100), "36.1 KB");
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(6.55e6), "6.55 MB");
  EXPECT_EQ(FormatBytes(5e21), "5000000 PB");
  EXPECT_EQ(FormatBytes(std::numeric_limits<double>::quiet_NaN()), "? B");
}

TEST(Units, FormatsDurations) {
  EXPECT_EQ(longhaul::FormatDuration(absl::Seconds(125)), "2m05s");
  EXPECT_EQ(longhaul::FormatDuration(absl::Milliseconds(1350)), "1.35 s");
  EXPECT_EQ(longhaul::FormatDuration(absl::Milliseconds(42)), "42 ms");
  EXPECT_EQ(longhaul::FormatDuration(absl::Microseconds(7)), "7 us");
  EXPECT_EQ(longhaul::FormatDuration(absl::Nanoseconds(999'700)), "1 ms");
  EXPECT_EQ(longhaul::FormatDuration(absl::Milliseconds(59'970)), "1m00s");
  EXPECT_EQ(longhaul::FormatDuration(absl::Seconds(3599) + absl::Milliseconds(600)), "1h00m");
  EXPECT_EQ(longhaul::FormatDuration(absl::Hours(52)), "2d04h");
  EXPECT_EQ(longhaul::FormatDuration(-absl::Seconds(2)), "-2 s");
  EXPECT_EQ(longhaul::FormatDuration(absl::ZeroDuration()), "0 s");
  EXPECT_EQ(longhaul::FormatDuration(absl::InfiniteDuration()), "forever");
}

}  // namespace
}  // namespace longhaul
