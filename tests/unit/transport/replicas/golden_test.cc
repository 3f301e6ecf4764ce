// The bytes of a version do not change: every kind of message of a step of two replicas.
#include "tests/support/golden.h"

#include <gtest/gtest.h>

#include "two_replicas.h"

namespace longhaul::replicas {
namespace {

void CheckMessages(const std::string& gradients, const std::string& parameters) {
  HandHeld one(0, gradients, parameters), other(1, gradients, parameters);
  ASSERT_TRUE(one.Give(3).ok() && other.Give(3).ok());
  const auto check = [&] {
    for (auto [from, number, to] : {std::tuple{&one, 0u, &other}, std::tuple{&other, 1u, &one}}) {
      for (Sent& sent : from->outbox.TakeAll()) {
        if (number == (sent.kind == MessageKind::kUnion ? 0u : 1u)) {
          testing::ExpectGolden(
              GOLDEN_DIR,
              "replicas_" + std::string(ToString(sent.kind)) + "_" +
                  (sent.kind == MessageKind::kParameters ? parameters : gradients),
              kMessageVersion, sent.bytes);
        }
        ASSERT_TRUE(to->reducer->Take(number, std::move(sent.bytes)).ok());
      }
    }
  };
  for (int round = 0; round < 3; ++round) check();
  ASSERT_TRUE(one.Publish().ok() && other.Publish().ok());
  check();
  EXPECT_TRUE(one.reducer->IsDone());
}

TEST(ReplicasGolden, Messages) {
  CheckMessages("sdp4bit", "difference4");
  CheckMessages("tagc:keep=0.02,least=1000", "bf16");
}

}  // namespace
}  // namespace longhaul::replicas
