// What a stranger's path opens beneath a root, and what it does not. Each case runs with the
// kernel's openat2 and with the walk that replaces it.
#include "base/root_folders.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/file.h"
#include "tests/support/temp_dir.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string TextOf(const FileBeneath& file) {
  std::string text(file.bytes(), '\0');
  EXPECT_TRUE(file.Read(0, std::as_writable_bytes(std::span(text))).ok());
  return text;
}

class RootFoldersTest : public ::testing::TestWithParam<RootFolders::Resolver> {
 protected:
  RootFoldersTest() {
    for (const char* folder : {"root/sets/words", "outside", "root/state"}) {
      fs::create_directories(At(folder));
    }
    Write("root/sets/words/a.bin", "words");
    Write("outside/key", "secret");
    Write("root/state/key", "secret");
  }
  std::string At(const std::string& path) const { return folder_.path() + "/" + path; }
  void Write(const std::string& path, const std::string& text) const {
    std::ofstream(At(path)) << text;
  }
  void Link(const std::string& target, const std::string& path) const {
    fs::create_symlink(target, At(path));
  }
  StatusOr<RootFolders> Open(const std::vector<std::string>& roots) const {
    return RootFolders::Open(roots, {At("root/state"), At("not-there")}, GetParam());
  }
  // What opens: the text of the file, or "refused".
  std::string Read(const std::string& path, const std::string& root = "root") const {
    const StatusOr<FileBeneath> file = Open({At(root)})->OpenFile(path);
    if (file.ok()) return TextOf(*file);
    EXPECT_EQ(file.status(), Open({At(root)})->OpenFile(At("root/nothing")).status())
        << path << ": refusals must not differ";
    return "refused";
  }

  const testing::TempDir folder_;
};

TEST_P(RootFoldersTest, FilesBeneathARootAreRead) {
  EXPECT_EQ(Read(At("root/sets/words/a.bin")), "words");
  EXPECT_EQ(Read(At("root/sets//words/./a.bin")), "words");
  EXPECT_EQ(Read(At("root/sets/../sets/words/a.bin")), "words");
  Link("words", "root/sets/current");
  EXPECT_EQ(Read(At("root/sets/current/a.bin")), "words");
  Link("../sets/words/a.bin", "root/sets/b.bin");
  EXPECT_EQ(Read(At("root/sets/b.bin")), "words");
  // The root itself may be reached through a link.
  Link("root", "alias");
  EXPECT_EQ(Read(At("alias/sets/words/a.bin"), "alias"), "words");
}

TEST_P(RootFoldersTest, NothingElseIs) {
  Link("../outside/key", "root/relative");
  Link(At("outside/key"), "root/absolute");
  Link(At("root/sets/words/a.bin"), "root/sets/back");  // absolute, though it stays inside
  Link("../outside", "root/folder");
  Link("/proc/self/fd", "root/fds");
  Link("loop", "root/loop");
  fs::create_directories(At("root2"));
  Write("root2/key", "secret");
  for (const char* path :
       {"outside/key", "root/../outside/key", "root/sets/../../outside/key", "root/relative",
        "root/absolute", "root/sets/back", "root/folder/key", "root/fds/0", "root/loop", "root",
        "root/", "root/sets", "root/sets/words/a.bin/", "root/sets/words/a.bin/..", "root2/key",
        "root/nothing", "root/nothing/else"}) {
    EXPECT_EQ(Read(At(path)), "refused") << path;
  }
  for (const std::string& path :
       {std::string(), std::string("root/sets/words/a.bin"), std::string("/etc/passwd"),
        std::string("/proc/self/environ"), At("root/sets/words/a.bin") + std::string("\0", 1),
        At("root/") + std::string(5000, 'x')}) {
    EXPECT_EQ(Read(path), "refused") << path;
  }
}

TEST_P(RootFoldersTest, WhatIsWithheldIsNotThere) {
  Link("state/key", "root/link-to-key");
  EXPECT_EQ(Read(At("root/state/key")), "refused");
  EXPECT_EQ(Read(At("root/sets/../state/key")), "refused");
  EXPECT_EQ(Read(At("root/link-to-key")), "refused");
}

TEST_P(RootFoldersTest, OnlyRegularFilesAreOpened) {
  ASSERT_EQ(::mkfifo(At("root/fifo").c_str(), 0600), 0);
  // Somebody who opens the FIFO for reading would be seen by a writer that does not block.
  EXPECT_EQ(Read(At("root/fifo")), "refused");
  EXPECT_EQ(::open(At("root/fifo").c_str(), O_WRONLY | O_NONBLOCK), -1);
  const auto tree = Open({"/"}).value();
  for (const char* path : {"/dev/null", "/dev/zero", "/dev", "/proc/self/environ",
                           "/proc/self/root/etc/passwd", "/proc/self/fd/0", "/sys/kernel/notes"}) {
    EXPECT_TRUE(absl::IsNotFound(tree.OpenFile(path).status())) << path;
  }
}

TEST_P(RootFoldersTest, OfTheWholeTreeAbsoluteLinksAreFollowed) {
  Link(At("outside/key"), "root/absolute");
  const auto tree = Open({"/"}).value();
  EXPECT_EQ(TextOf(tree.OpenFile(At("root/absolute")).value()), "secret");
  EXPECT_TRUE(absl::IsNotFound(tree.OpenFile(At("root/state/key")).status()));
}

TEST_P(RootFoldersTest, ReadsStayInsideTheFile) {
  const auto file = Open({At("root")})->OpenFile(At("root/sets/words/a.bin")).value();
  std::array<std::byte, 2> two{};
  EXPECT_TRUE(file.Read(3, two).ok());
  EXPECT_EQ(two[1], std::byte('s'));
  for (const uint64_t offset :
       {uint64_t{4}, uint64_t{5}, uint64_t{6}, uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 1}) {
    EXPECT_TRUE(absl::IsDataLoss(file.Read(offset, two))) << offset;
  }
  EXPECT_TRUE(file.Read(5, {}).ok());
}

// While somebody exchanges a folder and a link that leads out.
TEST_P(RootFoldersTest, NobodyWinsARace) {
  fs::create_directories(At("root/moving/in"));
  Write("root/moving/in/key", "mine");
  absl::Notification ended;
  std::thread mover([&] {
    while (!ended.HasBeenNotified()) {
      fs::rename(At("root/moving/in"), At("root/moving/aside"));
      fs::create_symlink("../../outside", At("root/moving/in"));
      fs::remove(At("root/moving/in"));
      fs::rename(At("root/moving/aside"), At("root/moving/in"));
    }
  });
  const auto roots = Open({At("root")}).value();
  for (int i = 0; i < 2000; ++i) {
    const auto file = roots.OpenFile(At("root/moving/in/key"));
    if (file.ok()) {
      EXPECT_EQ(TextOf(*file), "mine");
    }
  }
  ended.Notify();
  mover.join();
}

TEST_P(RootFoldersTest, RootsAreFoldersThatAreThere) {
  EXPECT_THAT(std::string(Message(Open({At("nothing")}).status())),
              HasSubstr("expected a folder that is there"));
  EXPECT_FALSE(Open({At("outside/key")}).ok());
  EXPECT_FALSE(Open({""}).ok());
  EXPECT_TRUE(absl::IsNotFound(RootFolders().OpenFile(At("outside/key")).status()));
}

// Has the kernel refuse openat2 to this thread, as containers do that do not know the call.
void RefuseOpenat2(uint32_t error) {
  std::array<sock_filter, 4> filter = {
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program = {.len = filter.size(), .filter = filter.data()};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
  ASSERT_EQ(::syscall(SYS_openat2, -1, "", nullptr, 0), -1);
  ASSERT_EQ(errno, static_cast<int>(error));
}

TEST_P(RootFoldersTest, AContainerMayRefuseTheKernelsCall) {
  Link("../outside/key", "root/relative");
  for (const uint32_t error : {EPERM, ENOSYS}) {
    std::thread([&] {
      RefuseOpenat2(error);
      EXPECT_EQ(Read(At("root/sets/words/a.bin")), "words");
      EXPECT_EQ(Read(At("root/relative")), "refused");
      EXPECT_EQ(Read(At("root/sets/../../outside/key")), "refused");
    }).join();
  }
}

INSTANTIATE_TEST_SUITE_P(Resolvers, RootFoldersTest,
                         ::testing::Values(RootFolders::Resolver::kKernel,
                                           RootFolders::Resolver::kWalk),
                         [](const auto& one) {
                           return one.param == RootFolders::Resolver::kWalk ? "walk" : "kernel";
                         });

}  // namespace
}  // namespace longhaul
