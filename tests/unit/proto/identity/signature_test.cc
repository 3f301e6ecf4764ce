#include "proto/identity/signature.h"

#include <gtest/gtest.h>

#include <string>

#include "proto/identity/authority.h"
#include "proto/identity/credentials.h"

namespace longhaul {
namespace {

class SignatureTest : public ::testing::Test {
 protected:
  std::string CertificateOf(const std::string& key) {
    return authority_
        .Sign(MakeRequest(key).value(),
              {.name = "worker1", .role = Role::kWorker, .worker_id = "an-id"},
              absl::FromUnixSeconds(1'800'000'000), absl::Hours(1))
        .value();
  }
  Authority authority_ = Authority::Make(absl::FromUnixSeconds(1'800'000'000)).value();
};

TEST_F(SignatureTest, OnlyTheKeyOfTheCertificateSignsOnlyThisText) {
  const std::string key = MakeKey().value(), certificate = CertificateOf(key);
  const std::string signature = SignText(key, "purpose 1\n", "text").value();
  EXPECT_TRUE(IsSignedBy(certificate, "purpose 1\n", "text", signature));
  EXPECT_FALSE(IsSignedBy(certificate, "purpose 1\n", "texts", signature));
  EXPECT_FALSE(IsSignedBy(certificate, "purpose 2\n", "text", signature));
  EXPECT_FALSE(IsSignedBy(CertificateOf(MakeKey().value()), "purpose 1\n", "text", signature));
  EXPECT_FALSE(IsSignedBy(certificate, "purpose 1\n", "text", ""));
  EXPECT_FALSE(IsSignedBy(certificate, "purpose 1\n", "text", "no signature"));
  EXPECT_FALSE(IsSignedBy("no certificate", "purpose 1\n", "text", signature));
  std::string changed = signature;
  changed.back() = static_cast<char>(changed.back() ^ 1);
  EXPECT_FALSE(IsSignedBy(certificate, "purpose 1\n", "text", changed));
}

TEST_F(SignatureTest, NeedsAKey) {
  EXPECT_EQ(SignText("no key", "purpose 1\n", "text").status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace longhaul
