// The authority's key is rotated: what counts before, while and after both do.
#include "proto/identity/rotation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "proto/identity/certificate.h"
#include "proto/identity/credentials.h"
#include "proto/identity/trust.h"
#include "tests/support/temp_dir.h"

namespace longhaul {
namespace {

using ::testing::HasSubstr;

const absl::Time kBegin = absl::FromUnixSeconds(1'800'000'000);
const absl::Time kEnd = kBegin + absl::Hours(24);

Authorities One() {
  return {.present = Authority::Make(kBegin).value(), .old = std::nullopt, .old_until = {}};
}

TEST(RotationTest, BothCountUntilTheEnd) {
  const Authorities before = One();
  const Authorities after = Rotate(before, kBegin, kEnd).value();
  EXPECT_NE(after.present.fingerprint(), before.present.fingerprint());
  EXPECT_TRUE(after.IsRotating(kEnd - absl::Seconds(1)));
  EXPECT_FALSE(after.IsRotating(kEnd));
  // Members of before know the old one, and so it is shown as long as it counts.
  EXPECT_EQ(after.Shown(kBegin).fingerprint(), before.present.fingerprint());
  EXPECT_EQ(after.Shown(kEnd).fingerprint(), after.present.fingerprint());
  const std::string both = after.Trusted(kBegin);
  EXPECT_EQ(CertificatesIn(both).value(),
            (std::vector<std::string>{after.present.certificate_pem(),
                                      before.present.certificate_pem()}));
  EXPECT_EQ(after.Trusted(kEnd), after.present.certificate_pem());
  // A member that keeps both trusts the old one no longer than it counts.
  EXPECT_EQ(StillTrusted(both, kEnd - absl::Seconds(1)).value(), both);
  const std::string later = StillTrusted(both, kEnd).value();
  EXPECT_EQ(CertificatesIn(later).value(),
            (std::vector<std::string>{after.present.certificate_pem()}));
  // It knows the old one's join tokens, though, also after further renewals and rotations.
  const std::string& old = before.present.fingerprint();
  EXPECT_EQ(later, after.present.certificate_pem() + "once authority " + old + "\n");
  EXPECT_EQ(TrustedAfter(later, after.Trusted(kEnd)).value(), later);
  EXPECT_EQ(TrustedAfter(both, after.Trusted(kEnd)).value(), later);
  EXPECT_EQ(TrustedAfter(both, both).value(), both);
  EXPECT_TRUE(KnowsAuthority(later, old).value());
  EXPECT_TRUE(KnowsAuthority(later, after.present.fingerprint()).value());
  EXPECT_FALSE(KnowsAuthority(later, std::string(64, 'a')).value());
  EXPECT_FALSE(StillTrusted(both.substr(0, both.find("until ") + 9), kBegin).ok());
  EXPECT_EQ(after.MakeServerIdentity(kBegin)->authority_pem, both);
  EXPECT_THAT(after.MakeServerIdentity(kBegin)->chain_pem,
              HasSubstr(before.present.certificate_pem()));
  EXPECT_EQ(after.MakeServerIdentity(kEnd)->authority_pem, after.Trusted(kEnd));
}

TEST(RotationTest, OneAtATime) {
  const Authorities after = Rotate(One(), kBegin, kEnd).value();
  const auto again = Rotate(after, kEnd - absl::Seconds(1), kEnd + absl::Hours(1));
  EXPECT_EQ(again.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(again.status().message()), HasSubstr("2027-01-16"));
  EXPECT_EQ(Rotate(after, kEnd, kEnd + absl::Hours(1))->old->fingerprint(),
            after.present.fingerprint());
  // Without an overlap the old key is kept nowhere.
  const Authorities at_once = Rotate(One(), kBegin, kBegin).value();
  EXPECT_FALSE(at_once.old.has_value());
}

TEST(RotationTest, ComesBackFromItsFile) {
  const testing::TempDir folder;
  bool made = false;
  const Authorities before = LoadOrMakeAuthorities(folder.path(), kBegin, &made).value();
  EXPECT_TRUE(made);
  const Authorities after = Rotate(before, kBegin, kEnd).value();
  ASSERT_TRUE(StoreAuthorities(folder.path(), after).ok());
  const Authorities read = LoadOrMakeAuthorities(folder.path(), kBegin, &made).value();
  EXPECT_FALSE(made);
  EXPECT_EQ(ToPem(read), ToPem(after));
  EXPECT_EQ(read.old_until, kEnd);
  // What knows of one authority alone, such as a tool, finds the present one.
  EXPECT_EQ(Authority::FromPem(ToPem(after))->fingerprint(), after.present.fingerprint());
}

TEST(RotationTest, DamagedFilesAreRefused) {
  const std::string pem = ToPem(Rotate(One(), kBegin, kEnd).value());
  const size_t at = pem.find("old authority until ");
  ASSERT_NE(at, std::string::npos);
  for (const std::string& damaged :
       {pem.substr(0, at + 30), pem.substr(0, pem.size() - 40), pem.substr(at),
        pem.substr(0, at) + "old authority until tomorrow\n" +
            pem.substr(pem.find('\n', at) + 1)}) {
    EXPECT_EQ(ParseAuthorities(damaged).status().code(), absl::StatusCode::kInvalidArgument)
        << damaged;
  }
}

TEST(RotationTest, CredentialsTrustBoth) {
  const Authorities after = Rotate(One(), kBegin, kEnd).value();
  Credentials credentials{
      .key_pem = MakeKey().value(), .certificate_pem = {}, .authority_pem = after.Trusted(kBegin)};
  credentials.certificate_pem =
      after.present
          .Sign(MakeRequest(credentials.key_pem).value(),
                {.name = "ann", .role = Role::kUser, .worker_id = {}}, kBegin, absl::Hours(1))
          .value();
  const Credentials read = ParseCredentials(ToPem(credentials)).value();
  EXPECT_EQ(read.authority_pem, credentials.authority_pem);
  EXPECT_EQ(CertificatesIn(read.authority_pem)->size(), 2u);
  std::string many;
  for (int i = 0; i < 9; ++i) many += after.present.certificate_pem();
  EXPECT_FALSE(CertificatesIn(many).ok());
  EXPECT_FALSE(CertificatesIn("").ok());
}

}  // namespace
}  // namespace longhaul
