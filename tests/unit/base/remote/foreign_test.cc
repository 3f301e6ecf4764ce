#include "base/remote/foreign.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul::remote {
namespace {

constexpr const char* kPage = R"(<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
  <Name>bucket</Name><Prefix>a/</Prefix><KeyCount>2</KeyCount><MaxKeys>2</MaxKeys>
  <IsTruncated>true</IsTruncated><NextContinuationToken>1/w=&amp;</NextContinuationToken>
  <Contents><Key>a/b &amp; &lt;c&gt;</Key><ETag>&quot;x&quot;</ETag><Size>12</Size></Contents>
  <Contents><Key>a/ü</Key><Size>0</Size></Contents>
</ListBucketResult>)";

TEST(ParseBucketPage, ReadsKeysAndTheNextPage) {
  const BucketPage page = ParseBucketPage(kPage).value();
  EXPECT_THAT(page.entries, ::testing::ElementsAre(Entry{.path = "a/b & <c>", .bytes = 12},
                                                   Entry{.path = "a/ü"}));
  EXPECT_EQ(page.next, "1/w=&");
  EXPECT_EQ(ParseBucketPage("<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
                .value()
                .next,
            "");
}

TEST(ParseBucketPage, RefusesOtherForms) {
  for (const char* xml : {"", "{}", "<Error/>", "<ListBucketResult>"}) {
    EXPECT_TRUE(absl::IsDataLoss(ParseBucketPage(xml).status())) << xml;
  }
  const auto list = [](const char* inside) {
    return fmt::format("<ListBucketResult>{}</ListBucketResult>", inside);
  };
  const char* const last = "<IsTruncated>false</IsTruncated>";
  ASSERT_TRUE(ParseBucketPage(list(last)).ok());
  for (const char* inside :
       {"<Contents><Key>a</Key></Contents>", "<Contents><Key>a</Key><Size>-1</Size></Contents>",
        "<Contents><Size>1</Size></Contents>",
        "<Contents><Key>a&#10;b</Key><Size>1</Size></Contents>"}) {
    const std::string xml = list(fmt::format("{}{}", last, inside).c_str());
    EXPECT_TRUE(absl::IsDataLoss(ParseBucketPage(xml).status())) << xml;
  }
  EXPECT_FALSE(ParseBucketPage(list("")).ok());
  EXPECT_FALSE(ParseBucketPage(list("<IsTruncated>true</IsTruncated>")).ok());
  // Entities of the document's own are not expanded.
  const std::string entity =
      list(fmt::format("{}<Contents><Key>&e;</Key><Size>&e;</Size></Contents>", last).c_str());
  EXPECT_FALSE(
      ParseBucketPage("<!DOCTYPE x [<!ENTITY e SYSTEM \"file:///etc/passwd\">]>" + entity).ok());
}

TEST(ErrorCodeOf, ReadsOnlyPlainNames) {
  EXPECT_EQ(ErrorCodeOf("<Error><Code>NoSuchKey</Code><Message>m</Message></Error>"), "NoSuchKey");
  EXPECT_EQ(ErrorCodeOf("<Error><Code>\x1b[31m</Code></Error>"), "");
  EXPECT_EQ(ErrorCodeOf("<html></html>"), "");
  EXPECT_EQ(ErrorCodeOf(""), "");
}

TEST(ParseUploadModes, ReadsThatOfEachFile) {
  const auto modes = ParseUploadModes(R"({"files": [{"path": "a/b", "uploadMode": "lfs"},
      {"path": "c", "uploadMode": "regular", "shouldIgnore": false}]})");
  ASSERT_TRUE(modes.ok()) << modes.status();
  EXPECT_EQ(*modes, (std::map<std::string, bool>{{"a/b", true}, {"c", false}}));
  for (const char* json : {"", "[]", "{}", R"({"files": []})", R"({"files": [1]})",
                           R"({"files": [{"path": "c"}]})", R"({"files": [{"uploadMode": "lfs"}]})",
                           R"({"files": [{"path": "c", "uploadMode": "other"}]})"}) {
    EXPECT_TRUE(absl::IsDataLoss(ParseUploadModes(json).status())) << json;
  }
}

TEST(ParseHubRevision, ReadsFilesAndTheCommit) {
  const std::string commit(40, 'a'), sha(64, 'b');
  const HubRevision revision = ParseHubRevision(R"({"sha": ")" + commit + R"(", "siblings": [
          {"rfilename": "config.json", "size": 10, "blobId": "x"},
          {"rfilename": "a/model.safetensors", "size": 5000000000,
           "lfs": {"sha256": ")" + sha + R"(", "size": 5000000000}}]})")
                                   .value();
  EXPECT_EQ(revision.commit, commit);
  EXPECT_THAT(revision.entries,
              ::testing::ElementsAre(
                  Entry{.path = "config.json", .bytes = 10},
                  Entry{.path = "a/model.safetensors", .bytes = 5'000'000'000, .sha256 = sha}));
}

TEST(ParseHubRevision, RefusesOtherForms) {
  const std::string head = R"({"sha": ")" + std::string(40, 'a') + R"(", "siblings": )";
  for (const std::string& json :
       {std::string(), std::string("[]"), std::string(R"({"sha": "main", "siblings": []})"),
        head + "{}}", head + "[1]}", head + R"([{"rfilename": "a"}]})",
        head + R"([{"rfilename": "", "size": 1}]})", head + R"([{"rfilename": "a", "size": -1}]})",
        head + R"([{"rfilename": "a", "size": 1.5}]})",
        head + R"([{"rfilename": "a", "size": 1, "lfs": {"sha256": "x"}}]})",
        head + std::string(100'000, '[')}) {
    EXPECT_TRUE(absl::IsDataLoss(ParseHubRevision(json).status())) << json.substr(0, 200);
  }
}

}  // namespace
}  // namespace longhaul::remote
