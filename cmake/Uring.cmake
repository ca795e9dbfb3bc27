# Finds liburing, with which files are read ahead side by side, and says what is compiled and linked:
# FASTLOADER_URING_SOURCE and FASTLOADER_URING_LIBRARY. Without it, threads read them.
if(NOT FASTLOADER_URING MATCHES "^(auto|on|off)$")
  message(FATAL_ERROR "FASTLOADER_URING=${FASTLOADER_URING}: use auto, on or off")
endif()
set(FASTLOADER_URING_SOURCE csrc/source/uring/absent.cpp)
set(FASTLOADER_URING_LIBRARY "")
unset(FASTLOADER_URING_LINKS CACHE)  # tried each time: another library may have been installed
if(NOT FASTLOADER_URING STREQUAL "off")
  find_path(URING_INCLUDE_DIR liburing.h)
  # The static one first: a build runs then where there is no liburing. One that is not
  # position-independent, or for another processor, does not link.
  foreach(name liburing.a uring)
    unset(URING_LIBRARY CACHE)
    find_library(URING_LIBRARY ${name})
    if(URING_INCLUDE_DIR AND URING_LIBRARY AND NOT FASTLOADER_URING_LINKS)
      try_compile(FASTLOADER_URING_LINKS ${CMAKE_BINARY_DIR}/uring
        SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/cmake/uring.cpp
        COMPILE_DEFINITIONS -fPIC LINK_OPTIONS -shared
        LINK_LIBRARIES ${URING_LIBRARY}
        CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${URING_INCLUDE_DIR}")
      set(linked ${URING_LIBRARY})
    endif()
  endforeach()
endif()
if(FASTLOADER_URING_LINKS)
  set(FASTLOADER_URING_SOURCE csrc/source/uring/file_queue.cpp)
  add_library(fastloader_uring INTERFACE)
  target_include_directories(fastloader_uring SYSTEM INTERFACE ${URING_INCLUDE_DIR})
  target_link_libraries(fastloader_uring INTERFACE ${linked})
  set(FASTLOADER_URING_LIBRARY fastloader_uring)
  message(STATUS "fastloader: io_uring with ${linked}")
elseif(FASTLOADER_URING STREQUAL "on")
  message(FATAL_ERROR "FASTLOADER_URING=on, but liburing was not found.\n"
    "  Debian, Ubuntu:  apt-get install liburing-dev\n"
    "  Fedora, RHEL:    dnf install liburing-devel")
else()
  message(STATUS "fastloader: without io_uring (FASTLOADER_URING=${FASTLOADER_URING})")
endif()
