#include "codec/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul::codec {
namespace {

using ::testing::HasSubstr;

TEST(CodecSpec, KeepsItsTextAndHasTheCodec) {
  const CodecSpec spec = "fixed:bits=4";
  EXPECT_EQ(ToString(spec), "fixed:bits=4");
  ASSERT_TRUE(spec.Get().ok()) << spec.Get().status();
  EXPECT_EQ((*spec.Get())->name(), "fixed:bits=4,tile=64,rounding=nearest");
  EXPECT_EQ(ToString(CodecSpec(*spec.Get())), "fixed:bits=4,tile=64,rounding=nearest");
  EXPECT_NE(spec, CodecSpec(*spec.Get()));
  const std::string text = "fixed:bits=4";
  EXPECT_EQ(spec, CodecSpec(text));
}

TEST(CodecSpec, KnowsTheFamilyAndItsState) {
  EXPECT_EQ(CodecSpec("tah:p=0.5").family(), "tah");
  EXPECT_EQ(CodecSpec("predict/gauss").family(), "predict");
  EXPECT_TRUE(CodecSpec("predict:pairs=0/gauss").predicts_by_tokens());
  EXPECT_FALSE(CodecSpec("gauss").predicts_by_tokens());
  EXPECT_TRUE(CodecSpec("aqsgd:bits=3").remembers_samples());
  EXPECT_FALSE(CodecSpec("tah").remembers_samples());
}

TEST(CodecSpec, KeepsTextThatIsNoCodec) {
  for (const char* text : {"auto", "tagc:keep=0.0125,least=65536", ""}) {
    const CodecSpec spec = text;
    EXPECT_FALSE(spec.Get().ok()) << text;
    EXPECT_EQ(ToString(spec), text);
    EXPECT_EQ(spec.family(), text);
    EXPECT_FALSE(spec.predicts_by_tokens() || spec.remembers_samples()) << text;
  }
  EXPECT_EQ(CodecSpec(), CodecSpec(""));
  EXPECT_FALSE(CodecSpec().Get().ok());
  EXPECT_THAT(std::string(Message(CodecSpec("thah").Get().status())),
              HasSubstr("unknown codec 'thah'; did you mean 'tah'?"));
}

}  // namespace
}  // namespace longhaul::codec
