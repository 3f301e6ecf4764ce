#include "base/seal.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace longhaul {
namespace {

using Bytes = std::vector<std::byte>;
using Tag = std::array<std::byte, kSealTagBytes>;

std::string Hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[static_cast<uint8_t>(b) >> 4];
    text += kDigits[static_cast<uint8_t>(b) & 15];
  }
  return text;
}

struct Sealed {
  Bytes open, payload;
  Tag tag{};
};

Sealed SealNext(Sealer& sealer, const Bytes& open, const Bytes& text, size_t cut = 0) {
  Sealed sealed{.open = open, .payload = Bytes(text.size())};
  sealer.Seal(open, std::span(text).first(cut), std::span(text).subspan(cut), sealed.payload.data(),
              sealed.tag);
  return sealed;
}

// False: it did not open.
bool OpenNext(Sealer& sealer, const Sealed& sealed, Bytes* text) {
  text->resize(sealed.payload.size());
  return sealer.Open(sealed.open, sealed.payload, sealed.tag, text->data());
}

// The first message has number 0: test case 14 of the GCM specification.
TEST(SealerTest, IsAes256Gcm) {
  Sealer sealer(std::string(kSealKeyBytes, '\0'));
  const Sealed sealed = SealNext(sealer, {}, Bytes(16));
  EXPECT_EQ(Hex(sealed.payload), "cea7403d4d606b6e074ec5d3baf39d18");
  EXPECT_EQ(Hex(sealed.tag), "d0d1c8a799996bf0265b98b5d48ab919");
}

// What OpenSSL's AES-256-GCM makes of message `number`.
Sealed ByOpenSsl(const std::string& key, uint8_t number, const Bytes& open, const Bytes& text) {
  const auto data = [](auto& bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); };
  const auto read = [](const auto& bytes) {
    return reinterpret_cast<const unsigned char*>(bytes.data());
  };
  std::array<unsigned char, 12> iv{};
  iv.back() = number;
  Sealed sealed{.open = open, .payload = Bytes(text.size())};
  const std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> cipher(
      EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free);
  int written = 0;
  EXPECT_EQ(EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, read(key), iv.data()), 1);
  EXPECT_EQ(
      EVP_EncryptUpdate(cipher.get(), nullptr, &written, read(open), static_cast<int>(open.size())),
      1);
  EXPECT_EQ(EVP_EncryptUpdate(cipher.get(), data(sealed.payload), &written, read(text),
                              static_cast<int>(text.size())),
            1);
  EXPECT_EQ(EVP_EncryptFinal_ex(cipher.get(), data(sealed.payload), &written), 1);
  EXPECT_EQ(
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kSealTagBytes, sealed.tag.data()), 1);
  return sealed;
}

// The lengths are around blocks of 16 bytes and the steps of wide instructions, up to 512 bytes.
TEST(SealerTest, GivesWhatOpenSslGives) {
  std::mt19937_64 random(11);
  const auto bytes = [&](size_t count) {
    Bytes result(count);
    for (std::byte& b : result) b = static_cast<std::byte>(random());
    return result;
  };
  const auto length = [&] {
    return 1 + 512 * (random() % 4) + 16 * (random() % 32) + random() % 33;
  };
  std::string key(kSealKeyBytes, '\0');
  for (int round = 0; round < 20; ++round) {
    for (char& c : key) c = static_cast<char>(random());
    Sealer here(key), there(key);
    for (uint8_t i = 0; i < 40; ++i) {
      const Bytes open = bytes(i % 2 == 0 ? 48 : 1 + random() % 1200);
      const Bytes text = bytes(i == 0 ? 65536 : length());
      const size_t cut =
          i % 3 == 0 ? std::min<size_t>(96, text.size()) : random() % (text.size() + 1);
      const Sealed sealed = SealNext(here, open, text, cut), other = ByOpenSsl(key, i, open, text);
      ASSERT_EQ(sealed.payload, other.payload) << text.size() << " bytes, cut at " << cut;
      ASSERT_EQ(sealed.tag, other.tag) << text.size() << " bytes, cut at " << cut;
      Bytes opened;
      ASSERT_TRUE(OpenNext(there, other, &opened)) << text.size() << " bytes";
      ASSERT_EQ(opened, text);
    }
  }
}

TEST(SealerTest, OpensWhatWasSealed) {
  std::mt19937_64 random(7);
  const std::string key = "a key of thirty-two bytes, no mo";
  Sealer here(key), there(key);
  for (int i = 0; i < 500; ++i) {
    Bytes text(random() % 3000), open(random() % 80);
    for (Bytes* bytes : {&text, &open}) {
      for (std::byte& b : *bytes) b = static_cast<std::byte>(random());
    }
    const Sealed sealed = SealNext(here, open, text, text.empty() ? 0 : random() % text.size());
    if (text.size() >= 16) {
      EXPECT_NE(sealed.payload, text);
    }
    Bytes opened;
    ASSERT_TRUE(OpenNext(there, sealed, &opened)) << "message " << i;
    EXPECT_EQ(opened, text);
  }
}

// Any bit of what is open, of what is encrypted, and of the tag.
TEST(SealerTest, EveryChangedBitIsSeen) {
  const std::string key(kSealKeyBytes, 'k');
  const Bytes open(48, std::byte{1}), text(40, std::byte{2});
  const size_t bits = 8 * (open.size() + text.size() + kSealTagBytes);
  for (size_t bit = 0; bit < bits; ++bit) {
    Sealer here(key), there(key);
    Sealed sealed = SealNext(here, open, text);
    size_t at = bit / 8;
    const auto flip = static_cast<std::byte>(1 << (bit % 8));
    if (at < open.size()) {
      sealed.open[at] ^= flip;
    } else if (at - open.size() < text.size()) {
      sealed.payload[at - open.size()] ^= flip;
    } else {
      sealed.tag[at - open.size() - text.size()] ^= flip;
    }
    Bytes opened;
    EXPECT_FALSE(OpenNext(there, sealed, &opened)) << "bit " << bit;
  }
}

TEST(SealerTest, OrderMatters) {
  const std::string key(kSealKeyBytes, 'k');
  const auto three = [&] {
    Sealer here(key);
    std::vector<Sealed> all;
    for (int i = 0; i < 3; ++i) all.push_back(SealNext(here, {}, Bytes(20, std::byte{5})));
    return all;
  };
  const std::vector<Sealed> sent = three();
  EXPECT_NE(sent[0].payload, sent[1].payload);  // of the same text
  Bytes opened;
  {
    Sealer there(key);
    EXPECT_FALSE(OpenNext(there, sent[1], &opened)) << "one was left out";
  }
  {
    Sealer there(key);
    EXPECT_TRUE(OpenNext(there, sent[0], &opened));
    EXPECT_FALSE(OpenNext(there, sent[0], &opened)) << "one was repeated";
  }
  Sealer other(std::string(kSealKeyBytes, 'x'));
  EXPECT_FALSE(OpenNext(other, sent[0], &opened)) << "by another key";
}

TEST(EphemeralKeyTest, TwoAgreeAndAThirdDoesNot) {
  const EphemeralKey here, there, third;
  EXPECT_EQ(here.public_key().size(), kPublicKeyBytes);
  EXPECT_NE(here.public_key(), there.public_key());
  const auto mine = here.Agree(there.public_key()), yours = there.Agree(here.public_key());
  ASSERT_TRUE(mine.ok() && yours.ok());
  EXPECT_EQ(*mine, *yours);
  EXPECT_EQ(mine->size(), kSealKeyBytes);
  EXPECT_NE(*third.Agree(there.public_key()), *yours);
}

// Points of small order, with which everybody agrees on the same: 0, 1, and p - 1.
TEST(EphemeralKeyTest, KeysThatAreNone) {
  const EphemeralKey here;
  std::string one(kPublicKeyBytes, '\0'), minus_one(kPublicKeyBytes, '\xff');
  one[0] = 1;
  minus_one[0] = '\xec';
  minus_one[31] = '\x7f';
  for (const std::string& peer :
       {std::string(kPublicKeyBytes, '\0'), one, minus_one, std::string("short"), std::string()}) {
    EXPECT_EQ(here.Agree(peer).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace longhaul
