#include "transport/collective/host/header.h"

#include <gmock/gmock.h>

#include <string>

namespace longhaul::collective::host {
namespace {

using ::testing::HasSubstr;

TEST(HeaderTest, ComesBack) {
  const Header header{.call = {.op = Op::kBroadcast,
                               .dtype = Dtype::kF16,
                               .reduction = Reduction::kMax,
                               .root = 3,
                               .count = uint64_t{1} << 40},
                      .step = 1,
                      .number = uint64_t{1} << 50,
                      .bytes = uint64_t{1} << 41};
  const auto decoded = DecodeHeader(EncodeHeader(header));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->call, header.call);
  EXPECT_EQ(decoded->step, header.step);
  EXPECT_EQ(decoded->number, header.number);
  EXPECT_EQ(decoded->bytes, header.bytes);
}

TEST(HeaderTest, RefusesWhatIsNone) {
  const auto good = EncodeHeader({});
  ASSERT_TRUE(DecodeHeader(good).ok());
  // Magic, operation, dtype, reduction, the zeros at the end.
  for (const size_t at : {0, 3, 4, 5, 6, 36, 39}) {
    auto bad = good;
    bad[at] = std::byte{99};
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeHeader(bad).status())) << at;
  }
}

TEST(HelloTest, ComesBackWithItsSecretAlone) {
  const std::string secret(kHelloSecretBytes, 's');
  const auto hello = EncodeHello(secret, 7);
  EXPECT_EQ(DecodeHello(hello, secret).value_or(0), 7u);
  EXPECT_FALSE(DecodeHello(hello, std::string(kHelloSecretBytes, 't')).ok());
  auto newer = hello;
  newer.back() = std::byte{1};
  EXPECT_THAT(Message(DecodeHello(newer, secret).status()), HasSubstr("version"));
}

}  // namespace
}  // namespace longhaul::collective::host
