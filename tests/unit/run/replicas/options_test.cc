#include "run/replicas/options.h"

#include <gmock/gmock.h>

namespace longhaul::replicas {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ReplicaOptions, SayThemselvesWithEveryKey) {
  const std::pair<const char*, const char*> texts[] = {
      {"none", "none"},
      {"bf16", "bf16"},
      {"sdp4bit", "sdp4bit:feedback=off"},
      {"sdp4bit:feedback=on", "sdp4bit:feedback=on"},
      {"tagc", "tagc:keep=0.0125,least=65536"},
      {"tagc:least=0,keep=0.1", "tagc:keep=0.1,least=0"},
      {"tagc:owner=dense", "tagc:keep=0.0125,least=65536"},
      {"tagc:owner=sparse", "tagc:keep=0.0125,least=65536,owner=sparse"},
      {"local-sgd:delay=0.5", "local-sgd:steps=20,delay=0.5,rate=0.7,momentum=0.9,feedback=on"}};
  for (const auto& [text, full] : texts) {
    const auto options = ParseGradients(text);
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_EQ(ToString(*options), full);
    EXPECT_EQ(ToString(ParseGradients(full).value()), full);
  }
  for (const char* text : {"fp32", "bf16", "difference4"}) {
    EXPECT_EQ(ToString(ParseParameters(text).value()), text);
  }
}

TEST(ReplicaOptions, RefuseWithWhatMayBeSaid) {
  const auto gradients = [](const char* text) {
    return std::string(ParseGradients(text).status().message());
  };
  EXPECT_THAT(gradients("tacg"), AllOf(HasSubstr("'tacg'"), HasSubstr("did you mean 'tagc'?")));
  EXPECT_THAT(gradients("bf16:keep=1"), HasSubstr("bf16 has no keys"));
  EXPECT_THAT(gradients("tagc:feedback=on"), HasSubstr("but keep, least, owner"));
  EXPECT_THAT(gradients("tagc:owner=none"), HasSubstr("dense or sparse, not 'none'"));
  EXPECT_THAT(gradients("tagc:keep=0.5"), HasSubstr("up to 0.25, not '0.5'"));
  EXPECT_THAT(gradients("tagc:keep=nan"), HasSubstr("not 'nan'"));
  EXPECT_THAT(gradients("sdp4bit:feedback=yes"), HasSubstr("on or off, not 'yes'"));
  EXPECT_THAT(gradients("local-sgd:steps=0"), HasSubstr("from 1, not '0'"));
  EXPECT_THAT(gradients("local-sgd:delay=1"), HasSubstr("below 1, not '1'"));
  EXPECT_THAT(gradients("local-sgd:momentum=1"), HasSubstr("below 1, not '1'"));
  EXPECT_THAT(gradients("local-sgd:rate=0"), HasSubstr("above 0"));
  const auto parameters = [](const char* text) {
    return std::string(ParseParameters(text).status().message());
  };
  EXPECT_THAT(parameters("difference"), HasSubstr("did you mean 'difference4'?"));
  EXPECT_THAT(parameters("bf16:a=b"), HasSubstr("has no keys"));
}

}  // namespace
}  // namespace longhaul::replicas
