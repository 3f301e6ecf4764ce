#include "base/spawn.h"

#include <signal.h>
#include <spawn.h>
#include <unistd.h>

namespace longhaul {

StatusOr<pid_t> Spawn(std::vector<std::string> words, int in, int out, ChildGroup group) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  // Spawn and not fork: other threads of this process run.
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  sigset_t none, usual;
  sigemptyset(&none);
  sigemptyset(&usual);
  for (const int number : {SIGINT, SIGTERM, SIGPIPE}) sigaddset(&usual, number);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  int flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
  if (group == ChildGroup::kOwn) {
    posix_spawnattr_setpgroup(&attributes, 0);
    flags |= POSIX_SPAWN_SETPGROUP;
  }
  posix_spawnattr_setflags(&attributes, static_cast<int16_t>(flags));
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, pointers[0], &files, &attributes, pointers.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) return FromErrno(words[0], error);
  return pid;
}

}  // namespace longhaul
