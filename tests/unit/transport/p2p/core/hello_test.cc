#include "transport/p2p/core/hello.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "proto/wire/link_header.h"
#include "tests/support/golden.h"

namespace longhaul::transport::internal {
namespace {

using ::testing::HasSubstr;

LinkHello Example() {
  return {.stage = kStageProve,
          .sealed = true,
          .version_min = 1,
          .version_max = 4,
          .key = {RunId("demo-ab12cd"), Stamp(7), EdgeId(2)},
          .attempt = 0x01020304,
          .received = 0x1112131415161718,
          .nonce = std::string(kNonceBytes, 'n'),
          .proof = std::string(kProofBytes, 'p')};
}

ProofInput ExampleProof() {
  return {.lane = Lane::kControl,
          .link_id = 5,
          .version_min = 1,
          .version_max = 4,
          .version = 1,
          .key = Example().key,
          .dialler_nonce = std::string(kNonceBytes, 'd'),
          .listener_nonce = std::string(kNonceBytes, 'l')};
}

TEST(HelloTest, RoundTrip) {
  const auto hello = DecodeHello(EncodeHello(Example()));
  ASSERT_TRUE(hello.ok()) << hello.status();
  EXPECT_EQ(hello->key, Example().key);
  EXPECT_EQ(hello->stage, kStageProve);
  EXPECT_TRUE(hello->sealed);
  EXPECT_EQ(hello->version_max, 4);
  EXPECT_EQ(hello->attempt, Example().attempt);
  EXPECT_EQ(hello->received, Example().received);
  EXPECT_EQ(hello->nonce, Example().nonce);
  EXPECT_EQ(hello->proof, Example().proof);
}

// A link's messages have the link header's version.
TEST(HelloTest, GoldenBytes) {
  const auto expect = [](const char* name, const std::vector<std::byte>& bytes) {
    longhaul::testing::ExpectGolden(GOLDEN_DIR, name, wire::kLinkVersionMax, bytes);
  };
  expect("link_hello", EncodeHello(Example()));
  expect("link_welcome", EncodeWelcome({.stage = 1,
                                        .version = 2,
                                        .received = 5,
                                        .nonce = std::string(kNonceBytes, 'n'),
                                        .proof = std::string(kProofBytes, 'p')}));
  expect("link_refusal", EncodeRefusal({.retry = true, .reason = "not expected there"}));
}

TEST(HelloTest, RefusesWhatIsNone) {
  const auto good = EncodeHello(Example());
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(DecodeHello(std::span(good).first(size)).ok()) << size;
  }
  LinkHello no_run = Example();
  no_run.key.run = RunId("");
  EXPECT_FALSE(DecodeHello(EncodeHello(no_run)).ok());
  LinkHello stage = Example();
  stage.stage = 3;
  EXPECT_FALSE(DecodeHello(EncodeHello(stage)).ok());
  LinkHello range = Example();
  range.version_min = 5;
  EXPECT_FALSE(DecodeHello(EncodeHello(range)).ok());
  range.version_min = 0;
  EXPECT_FALSE(DecodeHello(EncodeHello(range)).ok());
}

TEST(HelloTest, Welcome) {
  const auto welcome = DecodeWelcome(EncodeWelcome(
      {.stage = 1, .version = 3, .received = 9, .nonce = std::string(kNonceBytes, 'x')}));
  ASSERT_TRUE(welcome.ok()) << welcome.status();
  EXPECT_EQ(welcome->version, 3);
  EXPECT_EQ(welcome->received, 9u);
  EXPECT_EQ(welcome->nonce, std::string(kNonceBytes, 'x'));
  EXPECT_FALSE(DecodeWelcome({}).ok());
  EXPECT_FALSE(DecodeWelcome(EncodeWelcome({.stage = 9})).ok());
}

TEST(HelloTest, RefusalsTextIsCutAndMadePrintable) {
  const auto refusal =
      DecodeRefusal(EncodeRefusal({.retry = true,
                                   .code = absl::StatusCode::kNotFound,
                                   .reason = "one\ntwo\x1b" + std::string(5000, 'x')}));
  ASSERT_TRUE(refusal.ok()) << refusal.status();
  EXPECT_TRUE(refusal->retry);
  EXPECT_EQ(refusal->code, absl::StatusCode::kNotFound);
  EXPECT_EQ(refusal->reason.size(), kMaxRefusalBytes);
  EXPECT_THAT(refusal->reason, HasSubstr("one?two?"));
  EXPECT_FALSE(DecodeRefusal(EncodeRefusal({.code = absl::StatusCode::kOk})).ok());
}

TEST(HelloTest, ProofDependsOnEverything) {
  const std::string secret = "secret";
  const std::string proof = Prove(secret, Side::kDialler, ExampleProof());
  EXPECT_EQ(proof.size(), kProofBytes);
  EXPECT_EQ(proof, Prove(secret, Side::kDialler, ExampleProof()));
  EXPECT_NE(proof, Prove("other", Side::kDialler, ExampleProof()));
  EXPECT_NE(proof, Prove(secret, Side::kListener, ExampleProof()));
  const auto changed = [&](auto change) {
    ProofInput input = ExampleProof();
    change(input);
    return Prove(secret, Side::kDialler, input);
  };
  EXPECT_NE(proof, changed([](ProofInput& i) { i.lane = Lane::kBulk; }));
  EXPECT_NE(proof, changed([](ProofInput& i) { i.link_id = 6; }));
  EXPECT_NE(proof, changed([](ProofInput& i) { i.attempt = 1; }));
  EXPECT_NE(proof, changed([](ProofInput& i) { i.dialler_received = 1; }));
  EXPECT_NE(proof, changed([](ProofInput& i) { i.listener_received = 1; }));
  EXPECT_NE(proof, changed([](ProofInput& i) { i.version_min = 0; }));
  EXPECT_NE(proof, changed([](ProofInput& i) { i.version_max = 5; }));
  EXPECT_NE(proof, changed([](ProofInput& i) { i.version = 2; }));
  EXPECT_NE(proof, changed([](ProofInput& i) { i.key.stamp = Stamp(8); }));
  EXPECT_NE(proof, changed([](ProofInput& i) { i.key.edge = EdgeId(3); }));
  EXPECT_NE(proof, changed([](ProofInput& i) { i.key.run = RunId("demo-ab12ce"); }));
  EXPECT_NE(proof, changed([](ProofInput& i) { i.dialler_nonce[0] = 'x'; }));
  EXPECT_NE(proof, changed([](ProofInput& i) { i.listener_nonce[31] = 'x'; }));
  EXPECT_NE(proof, changed([](ProofInput& i) { i.sealed = true; }));
}

TEST(HelloTest, KeysOfASealDependOnEverything) {
  ProofInput input = ExampleProof();
  input.sealed = true;
  const std::string agreed(32, 'a'), key = SealKeyOf("secret", agreed, Side::kDialler, input);
  EXPECT_EQ(key.size(), 32u);
  EXPECT_NE(key, SealKeyOf("secret", agreed, Side::kListener, input)) << "the other direction";
  EXPECT_NE(key, SealKeyOf("other", agreed, Side::kDialler, input));
  EXPECT_NE(key, SealKeyOf("secret", std::string(32, 'b'), Side::kDialler, input));
  EXPECT_NE(key, Prove("secret", Side::kDialler, input));
  input.lane = Lane::kBulk;
  EXPECT_NE(key, SealKeyOf("secret", agreed, Side::kDialler, input)) << "the other lane";
}

TEST(HelloTest, ChoosesTheHighestCommonVersion) {
  EXPECT_EQ(*ChooseVersion(1, 4, 2, 9), 4);
  EXPECT_EQ(*ChooseVersion(1, 1, 1, 1), 1);
  const Status none = ChooseVersion(1, 2, 3, 4).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(Message(none)), HasSubstr("1 to 2"));
  EXPECT_THAT(std::string(Message(none)), HasSubstr("3 to 4"));
}

}  // namespace
}  // namespace longhaul::transport::internal
