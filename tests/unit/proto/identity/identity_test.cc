// Authority, credentials and join tokens, by themselves and as OpenSSL's verification sees them.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <random>
#include <string>

#include "base/file.h"
#include "proto/identity/authority.h"
#include "proto/identity/credentials.h"
#include "proto/identity/join_token.h"
#include "proto/identity/rotation.h"
#include "tests/support/golden.h"
#include "tests/support/temp_dir.h"

namespace longhaul {
namespace {

using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);
const Member kWorker{.name = "worker1", .role = Role::kWorker, .worker_id = "an-id"};

std::unique_ptr<X509, decltype(&X509_free)> Parse(const std::string& pem) {
  const std::unique_ptr<BIO, decltype(&BIO_free_all)> bio(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free_all);
  return {PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), &X509_free};
}

// X509_V_OK, or why OpenSSL does not believe the certificate for that purpose at that time.
int Verify(const std::string& authority_pem, const std::string& pem, int purpose, absl::Time when) {
  const auto authority = Parse(authority_pem), certificate = Parse(pem);
  const std::unique_ptr<X509_STORE, decltype(&X509_STORE_free)> store(X509_STORE_new(),
                                                                      &X509_STORE_free);
  X509_STORE_add_cert(store.get(), authority.get());
  const std::unique_ptr<X509_STORE_CTX, decltype(&X509_STORE_CTX_free)> context(
      X509_STORE_CTX_new(), &X509_STORE_CTX_free);
  X509_STORE_CTX_init(context.get(), store.get(), certificate.get(), nullptr);
  X509_STORE_CTX_set_purpose(context.get(), purpose);
  X509_STORE_CTX_set_time(context.get(), 0, absl::ToTimeT(when));
  X509_verify_cert(context.get());
  return X509_STORE_CTX_get_error(context.get());
}

std::string NewRequest() {
  return MakeRequest(MakeKey().value()).value();
}

TEST(AuthorityTest, SignsWhatOpenSslBelieves) {
  const Authority authority = Authority::Make(kNow).value();
  const std::string pem = authority.Sign(NewRequest(), kWorker, kNow, absl::Hours(1)).value();
  const auto verify = [&](const std::string& root, int purpose, absl::Time when) {
    return Verify(root, pem, purpose, when);
  };
  const std::string& root = authority.certificate_pem();
  EXPECT_EQ(verify(root, X509_PURPOSE_SSL_CLIENT, kNow), X509_V_OK);
  // A member cannot pass for the coordinator, nor sign others.
  EXPECT_EQ(verify(root, X509_PURPOSE_SSL_SERVER, kNow), X509_V_ERR_INVALID_PURPOSE);
  EXPECT_EQ(X509_check_ca(Parse(pem).get()), 0);
  EXPECT_EQ(verify(root, X509_PURPOSE_SSL_CLIENT, kNow + absl::Hours(1) + absl::Seconds(1)),
            X509_V_ERR_CERT_HAS_EXPIRED);
  EXPECT_EQ(verify(root, X509_PURPOSE_SSL_CLIENT, kNow - absl::Hours(2)),
            X509_V_ERR_CERT_NOT_YET_VALID);
  const Authority other = Authority::Make(kNow).value();
  EXPECT_NE(verify(other.certificate_pem(), X509_PURPOSE_SSL_CLIENT, kNow), X509_V_OK);
  EXPECT_NE(authority.fingerprint(), other.fingerprint());
}

TEST(AuthorityTest, ItsServerIsOneAndNoMember) {
  const Authority authority = Authority::Make(kNow).value();
  const ServerIdentity server = authority.MakeServerIdentity(kNow).value();
  EXPECT_EQ(Verify(authority.certificate_pem(), server.chain_pem, X509_PURPOSE_SSL_SERVER,
                   kNow + absl::Hours(24 * 3000)),
            X509_V_OK);
  EXPECT_EQ(X509_check_host(Parse(server.chain_pem).get(), kCoordinatorName, 0, 0, nullptr), 1);
  EXPECT_FALSE(ReadMemberCertificate(server.chain_pem).ok());
  EXPECT_FALSE(ReadMemberCertificate(authority.certificate_pem()).ok());
}

TEST(AuthorityTest, ComesBackFromItsFile) {
  const testing::TempDir folder;
  bool made = false;
  const Authority authority = LoadOrMakeAuthorities(folder.path(), kNow, &made)->present;
  EXPECT_TRUE(made);
  const std::string path = folder.path() + "/authority.pem";
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(LoadOrMakeAuthorities(folder.path(), kNow, &made)->present.fingerprint(),
            authority.fingerprint());
  EXPECT_FALSE(made);
  // A damaged one is never replaced in silence.
  ASSERT_TRUE(WriteFileAtomic(path, authority.certificate_pem()).ok());
  EXPECT_EQ(LoadOrMakeAuthorities(folder.path(), kNow, &made).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const Authority other = Authority::Make(kNow).value();
  EXPECT_FALSE(Authority::FromPem(
                   authority.ToPem().substr(0, authority.ToPem().find("-----BEGIN CERTIFICATE")) +
                   other.certificate_pem())
                   .ok());
}

TEST(AuthorityTest, TakesOfARequestTheKeyAlone) {
  const Authority authority = Authority::Make(kNow).value();
  const std::string request = NewRequest();
  EXPECT_EQ(RequestedKey(request).value(), RequestedKey(request).value());
  EXPECT_NE(RequestedKey(request).value(), RequestedKey(NewRequest()).value());
  // A bit of it is another request or none: it is signed by its own key.
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::string bent = request;
    char& c = bent[random() % bent.size()];
    c = static_cast<char>(c ^ (1 << (random() % 7)));
    const auto key = RequestedKey(bent);
    if (key.ok()) {
      EXPECT_EQ(*key, *RequestedKey(request)) << bent;
    }
  }
  for (const char* nonsense : {"", "-----BEGIN CERTIFICATE REQUEST-----\n", "x"}) {
    EXPECT_EQ(authority.Sign(nonsense, kWorker, kNow, absl::Hours(1)).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(RequestedKey(request + std::string(kMaxPemBytes, ' ')).ok());
}

TEST(CertificateTest, SaysWhatWasSigned) {
  const Authority authority = Authority::Make(kNow).value();
  std::mt19937 random(2);
  constexpr std::string_view kLetters = "aZ9._-";
  const auto text = [&](size_t most) {
    std::string some;
    for (size_t left = 1 + random() % most; left > 0; --left) {
      some += kLetters[random() % kLetters.size()];
    }
    return some;
  };
  for (int i = 0; i < 50; ++i) {
    const Role role = static_cast<Role>(random() % 3);
    const Member member{text(kMaxMemberNameBytes), role, role == Role::kWorker ? text(64) : ""};
    const absl::Duration life = absl::Seconds(1 + random() % 1'000'000);
    const std::string request = NewRequest();
    const std::string pem = authority.Sign(request, member, kNow, life).value();
    const MemberCertificate read = ReadMemberCertificate(pem).value();
    EXPECT_EQ(read.member, member);
    EXPECT_EQ(read.key_sha256, RequestedKey(request).value());
    EXPECT_EQ(read.not_after, kNow + life);
    EXPECT_LT(RenewalTime(read), read.not_after);
    EXPECT_GT(RenewalTime(read), kNow - absl::Seconds(1));
  }
}

TEST(CertificateTest, NamesThatOthersCouldReadOtherwiseAreRefused) {
  const Authority authority = Authority::Make(kNow).value();
  for (const Member& member :
       {Member{"", Role::kUser, ""}, Member{"a b", Role::kUser, ""}, Member{"a\n", Role::kUser, ""},
        Member{std::string("a\0b", 3), Role::kUser, ""},
        Member{std::string(kMaxMemberNameBytes + 1, 'a'), Role::kUser, ""},
        Member{"a", Role::kUser, "an-id"}, Member{"a", Role::kWorker, ""},
        Member{"a", Role::kWorker, "../x"}}) {
    EXPECT_FALSE(authority.Sign(NewRequest(), member, kNow, absl::Hours(1)).ok()) << member.name;
  }
  EXPECT_EQ(MemberNameFrom("two words/\n"), "two-words--");
  EXPECT_EQ(MemberNameFrom(""), "member");
  EXPECT_TRUE(CheckMember({MemberNameFrom(std::string(500, '!')), Role::kUser, ""}).ok());
}

TEST(CredentialsTest, ComeBackAsTheyWere) {
  const testing::TempDir folder;
  const std::string path = folder.path() + "/new/me.pem";
  const Authority authority = Authority::Make(kNow).value();
  EXPECT_EQ(LoadCredentials(path).status().code(), absl::StatusCode::kNotFound);
  Credentials own;
  own.key_pem = MakeKey().value();
  ASSERT_TRUE(StoreCredentials(path, own).ok());
  EXPECT_FALSE(LoadCredentials(path)->joined());
  own.certificate_pem =
      authority.Sign(MakeRequest(own.key_pem).value(), kWorker, kNow, absl::Hours(1)).value();
  own.authority_pem = authority.certificate_pem();
  ASSERT_TRUE(StoreCredentials(path, own).ok());
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const Credentials back = LoadCredentials(path).value();
  EXPECT_EQ(ToPem(back), ToPem(own));
  Credentials stolen = own;  // a certificate without its key
  stolen.key_pem = MakeKey().value();
  EXPECT_THAT(ParseCredentials(ToPem(stolen)).status().message(), HasSubstr("key is not that"));
  Credentials cut = own;
  cut.authority_pem.clear();
  EXPECT_FALSE(ParseCredentials(ToPem(cut)).ok());
  EXPECT_FALSE(ParseCredentials("").ok());
}

TEST(JoinTokenTest, IsWrittenAsEver) {
  const JoinToken token{Role::kWorker, std::string(64, 'a'), std::string(48, '0')};
  testing::ExpectGolden(GOLDEN_DIR, "join_token", kJoinTokenVersion, ToString(token) + "\n");
  EXPECT_EQ(ParseJoinToken(ToString(token)).value(), token);
}

TEST(JoinTokenTest, NothingElseIsOne) {
  const JoinToken token = NewJoinToken(Role::kUser, std::string(64, 'b'));
  EXPECT_NE(token.secret, NewJoinToken(Role::kUser, token.fingerprint).secret);
  const std::string text = ToString(token);
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(ParseJoinToken(text.substr(0, length)).ok());
  }
  // Two texts are never one token.
  for (size_t at = 0; at < text.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string bent = text;
      bent[at] = static_cast<char>(byte);
      const auto parsed = ParseJoinToken(bent);
      if (parsed.ok()) {
        EXPECT_EQ(ToString(*parsed), bent);
      } else {
        EXPECT_THAT(std::string(parsed.status().message()), Not(HasSubstr(token.secret)));
      }
    }
  }
  EXPECT_FALSE(ParseJoinToken(text + "0").ok());
  EXPECT_FALSE(ParseJoinToken(" " + text).ok());
  EXPECT_FALSE(IsJoinToken("a-token-of-before"));
}

TEST(JoinTokenTest, AnAdminsIsForEveryRole) {
  for (const Role wanted : {Role::kWorker, Role::kUser, Role::kAdmin}) {
    EXPECT_TRUE(MayJoinAs(Role::kAdmin, wanted));
    EXPECT_EQ(MayJoinAs(Role::kUser, wanted), wanted == Role::kUser);
    EXPECT_EQ(MayJoinAs(Role::kWorker, wanted), wanted == Role::kWorker);
    EXPECT_EQ(ParseRole(ToString(wanted)).value(), wanted);
  }
  EXPECT_FALSE(ParseRole("Admin").ok());
}

}  // namespace
}  // namespace longhaul
