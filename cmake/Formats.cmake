# Finds what the decoders of PNG and WebP are made with, and says which of their files are compiled:
# FASTLOADER_FORMAT_SOURCES, and the libraries, FASTLOADER_FORMAT_LIBRARIES. Without its library a
# format's absent.cpp is compiled in their place, and Pillow decodes the format.
set(FASTLOADER_FORMAT_SOURCES "")
set(FASTLOADER_FORMAT_LIBRARIES "")

foreach(format PNG WEBP)
  if(NOT FASTLOADER_${format} MATCHES "^(auto|on|off)$")
    message(FATAL_ERROR "FASTLOADER_${format}=${FASTLOADER_${format}}: use auto, on or off")
  endif()
endforeach()

# PNG's compression; Pillow, too, decodes PNG with zlib and no libpng.
set(FASTLOADER_HAVE_PNG OFF)
if(NOT FASTLOADER_PNG STREQUAL "off")
  find_package(ZLIB QUIET)
  set(FASTLOADER_HAVE_PNG ${ZLIB_FOUND})
endif()
if(FASTLOADER_PNG STREQUAL "on" AND NOT FASTLOADER_HAVE_PNG)
  message(FATAL_ERROR "FASTLOADER_PNG=on, but zlib's headers were not found.\n"
    "  Debian, Ubuntu:  apt-get install zlib1g-dev\n"
    "  Fedora, RHEL:    dnf install zlib-devel")
endif()
if(FASTLOADER_HAVE_PNG)
  file(GLOB sources CONFIGURE_DEPENDS csrc/image/png/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/absent\\.cpp$")
  list(APPEND FASTLOADER_FORMAT_SOURCES ${sources})
  list(APPEND FASTLOADER_FORMAT_LIBRARIES ZLIB::ZLIB)
  message(STATUS "fastloader: PNG with zlib ${ZLIB_VERSION_STRING}")
else()
  list(APPEND FASTLOADER_FORMAT_SOURCES csrc/image/png/absent.cpp)
  message(STATUS "fastloader: without PNG (FASTLOADER_PNG=${FASTLOADER_PNG})")
endif()

set(FASTLOADER_HAVE_WEBP OFF)
if(NOT FASTLOADER_WEBP STREQUAL "off")
  find_path(WEBP_INCLUDE_DIR webp/demux.h)
  find_library(WEBP_LIBRARY webp)
  find_library(WEBP_DEMUX_LIBRARY webpdemux)
  if(WEBP_INCLUDE_DIR AND WEBP_LIBRARY AND WEBP_DEMUX_LIBRARY)
    set(FASTLOADER_HAVE_WEBP ON)
  endif()
endif()
if(FASTLOADER_WEBP STREQUAL "on" AND NOT FASTLOADER_HAVE_WEBP)
  message(FATAL_ERROR "FASTLOADER_WEBP=on, but libwebp and libwebpdemux were not found.\n"
    "  Debian, Ubuntu:  apt-get install libwebp-dev\n"
    "  Fedora, RHEL:    dnf install libwebp-devel")
endif()
if(FASTLOADER_HAVE_WEBP)
  list(APPEND FASTLOADER_FORMAT_SOURCES csrc/image/webp/decoder.cpp csrc/image/webp/library.cpp)
  add_library(fastloader_webp INTERFACE)
  target_include_directories(fastloader_webp SYSTEM INTERFACE ${WEBP_INCLUDE_DIR})
  target_link_libraries(fastloader_webp INTERFACE ${WEBP_DEMUX_LIBRARY} ${WEBP_LIBRARY})
  list(APPEND FASTLOADER_FORMAT_LIBRARIES fastloader_webp)
  message(STATUS "fastloader: WebP with ${WEBP_LIBRARY}")
else()
  list(APPEND FASTLOADER_FORMAT_SOURCES csrc/image/webp/absent.cpp)
  message(STATUS "fastloader: without WebP (FASTLOADER_WEBP=${FASTLOADER_WEBP})")
endif()
