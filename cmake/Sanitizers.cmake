if(FASTLOADER_SANITIZE STREQUAL "address")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=address,undefined)
elseif(FASTLOADER_SANITIZE STREQUAL "thread")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=thread>)
  add_link_options(-fsanitize=thread)
elseif(NOT FASTLOADER_SANITIZE STREQUAL "")
  message(FATAL_ERROR "FASTLOADER_SANITIZE=${FASTLOADER_SANITIZE}: use address, thread or nothing")
endif()

# What a test does around the code that it looks at takes most of the compiler's time, and little of the program's.
# UndefinedBehaviorSanitizer, which doubles that time, looks at what is tested. PRIVATE options of a target come behind
# those of the build type.
if(FASTLOADER_SANITIZE)
  set(FASTLOADER_TEST_OPTIONS $<$<COMPILE_LANGUAGE:CXX>:-O0>)
  if(FASTLOADER_SANITIZE STREQUAL "address")
    list(APPEND FASTLOADER_TEST_OPTIONS $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=undefined>)
  endif()
else()
  set(FASTLOADER_TEST_OPTIONS $<$<COMPILE_LANGUAGE:CXX>:-O1>)
endif()
