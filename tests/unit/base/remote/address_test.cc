#include "base/remote/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul::remote {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ParseAddress, ReadsAllKinds) {
  EXPECT_EQ(ParseAddress("hf://org/name/a/b.safetensors").value(),
            (Address{Kind::kHubModel, "org/name", "main", "a/b.safetensors"}));
  EXPECT_EQ(ParseAddress("hf://org/name@v1.0").value(),
            (Address{Kind::kHubModel, "org/name", "v1.0", ""}));
  EXPECT_EQ(ParseAddress("hf://datasets/org/na.me@refs%2Fpr%2F1/x y").value(),
            (Address{Kind::kHubDataset, "org/na.me", "refs/pr/1", "x y"}));
  EXPECT_EQ(ParseAddress("s3://my-bucket/a key/ü").value(),
            (Address{Kind::kS3, "my-bucket", "", "a key/ü"}));
  EXPECT_EQ(ParseAddress("gs://my_bucket.a").value(),
            (Address{Kind::kGoogle, "my_bucket.a", "", ""}));
  EXPECT_EQ(ParseAddress("https://Host.org:8443/a%20b?c=d").value(),
            (Address{Kind::kWeb, "https://Host.org:8443", "", "a%20b?c=d"}));
}

TEST(ParseAddress, PrintsToTheSameAgain) {
  for (const char* text :
       {"hf://org/name/a", "hf://org/name@refs%2Fpr%2F1/a", "hf://datasets/org/name@0123abcd/",
        "s3://bucket/", "s3://bucket/a b/%41?x#y", "gs://bucket/a/", "https://host/a?b=c",
        "http://127.0.0.1:1/x"}) {
    const auto address = ParseAddress(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(ToString(*address), text);
    EXPECT_EQ(ParseAddress(ToString(*address)).value(), *address);
  }
}

TEST(ParseAddress, SaysWhatIsWrong) {
  const auto error = [](std::string_view text) {
    const Status status = ParseAddress(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    return std::string(Message(status));
  };
  EXPECT_THAT(error("bucket/key"), HasSubstr("expected hf://ORG/NAME[@REVISION]/PATH"));
  EXPECT_THAT(error("ftp://a/b"), HasSubstr("got 'ftp://a/b'"));
  EXPECT_THAT(error("hf://name"), HasSubstr("an ORG and a NAME"));
  EXPECT_THAT(error("hf://org/../x"), HasSubstr("an ORG and a NAME"));
  EXPECT_THAT(error("hf://org/name@/x"), HasSubstr("a branch, a tag or a commit"));
  EXPECT_THAT(error("hf://org/name@a%2"), HasSubstr("a branch, a tag or a commit"));
  EXPECT_THAT(error("hf://org/name@..%2F..%2Fx/y"), HasSubstr("a branch, a tag or a commit"));
  EXPECT_THAT(error("s3://Bucket/key"), HasSubstr("a bucket of 3 to 222 small letters"));
  EXPECT_THAT(error("s3://b/key"), HasSubstr("a bucket"));
  EXPECT_THAT(error("s3://bucket/a/../b"), HasSubstr("without empty names, '.' and '..'"));
  EXPECT_THAT(error("s3://bucket//b"), HasSubstr("without empty names"));
  EXPECT_THAT(error("s3://bucket/a\nb"), HasSubstr("without control characters"));
  EXPECT_THAT(error("s3://bucket/" + std::string(1025, 'a')), HasSubstr("at most 1024 bytes"));
  EXPECT_THAT(error("https://user:secret@host/"), Not(HasSubstr("secret")));
}

TEST(ShownAddress, HidesTheQueryOfASignedAddress) {
  EXPECT_EQ(ShownAddress(ParseAddress("https://host/a?X-Amz-Signature=secret").value()),
            "https://host/a?...");
  EXPECT_EQ(ShownAddress(ParseAddress("s3://bucket/a?b").value()), "s3://bucket/a?b");
}

TEST(Inside, StaysInsideAndEscapesForTheWeb) {
  const auto inside = [](const char* folder, const char* path) {
    return ToString(Inside(ParseAddress(folder).value(), path).value());
  };
  EXPECT_EQ(inside("s3://bucket", "a b"), "s3://bucket/a b");
  EXPECT_EQ(inside("s3://bucket/x/", "a"), "s3://bucket/x/a");
  EXPECT_EQ(inside("hf://org/name@v1/x", "a"), "hf://org/name@v1/x/a");
  EXPECT_EQ(inside("https://host/x", "a b/c?"), "https://host/x/a%20b/c%3F");
  for (const char* path : {"", "/a", "../a", "a//b", "a/./b", "a\n"}) {
    EXPECT_FALSE(Inside(ParseAddress("s3://bucket/x/").value(), path).ok()) << path;
  }
  EXPECT_FALSE(Inside(ParseAddress("https://host/x?signed").value(), "a").ok());
}

}  // namespace
}  // namespace longhaul::remote
